package osdmap

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
)

func TestASplitConcernsTheGroupsThatGiveObjectsAway(t *testing.T) {
	for from := uint32(1); from < 70; from++ {
		for to := from + 1; to < 140; to++ {
			gives := map[uint32]bool{}
			for child := from; child < to; child++ {
				gives[stableMod(child, from)] = true
			}
			for seed := range from {
				if Splits(seed, from, to) != gives[seed] {
					t.Fatalf("from %d to %d groups: Splits(%d) = %v", from, to, seed, !gives[seed])
				}
			}
		}
	}
}

// The settings of pools that clients obey are those that the real tool reads in maps of real clusters.
func TestThePoolsOfRealMapsAreReadAsTheToolReadsThem(t *testing.T) {
	tool, err := exec.LookPath("osdmaptool")
	if err != nil {
		t.Skip("osdmaptool is not installed")
	}
	paths, err := filepath.Glob("testdata/*-real-*.osdmap.gz")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	compared := 0
	for _, path := range paths {
		whole := captured.Unzip(t, path)
		m, err := Decode(whole)
		if err != nil {
			t.Fatal(err)
		}
		plain := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(plain, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := exec.Command(tool, "--dump", "json", plain).Output()
		if err != nil {
			continue // a map of a newer release
		}
		var dump struct {
			Pools []struct {
				Pool    int64  `json:"pool"`
				MinSize uint8  `json:"min_size"`
				Flags   uint64 `json:"flags"`
				Pending uint32 `json:"pg_num_pending"`
				Forced  string `json:"last_force_op_resend"`
			}
		}
		if err := json.Unmarshal(text, &dump); err != nil || len(dump.Pools) == 0 {
			t.Fatalf("%s: %v", path, err)
		}
		for _, want := range dump.Pools {
			p := m.Pool(want.Pool)
			var resend uint32
			if err := json.Unmarshal([]byte(want.Forced), &resend); err != nil {
				t.Fatal(err)
			}
			if p != nil && p.Pending > 0 {
				compared++
			}
			if p == nil || p.MinSize != want.MinSize || p.Flags != want.Flags || p.Pending != want.Pending || p.Resend != resend {
				t.Errorf("%s: pool %d is %+v, the tool says %+v", path, want.Pool, p, want)
			}
		}
	}
	if compared == 0 {
		t.Error("nothing was compared")
	}
}
