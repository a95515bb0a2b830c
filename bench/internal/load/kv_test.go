package load

import (
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
)

func kvServer(t *testing.T, each bool) *kv.Server {
	t.Helper()
	s, err := kv.Serve(t.TempDir(), each)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openKV(t *testing.T, s *kv.Server, o KVOptions, ledger *kv.Ledger) (*KV, error) {
	t.Helper()
	o.Addr = s.Addr().String()
	k, err := OpenKV(t.Context(), o, ledger)
	if err == nil {
		t.Cleanup(k.Close)
	}
	return k, err
}

// kvSlice is short and ends when all open requests were answered.
var kvSlice = Slice{Warm: time.Millisecond, WarmMax: 20 * time.Second, Window: 10 * time.Millisecond, WindowMax: 20 * time.Second}

// Matrix: BE-07
func TestPutsAndGetsAreMeasuredAndChecked(t *testing.T) {
	const keys = 300
	for _, each := range []bool{false, true} {
		s := kvServer(t, each)
		if s.Settings()["syncs"] == "" {
			t.Error("it does not say how it syncs")
		}
		for _, size := range []int{100, 64 << 10} {
			ledger := kv.NewLedger(keys)
			for _, put := range []bool{false, true} {
				for _, shape := range [][2]int{{1, 1}, {5, 7}} {
					o := KVOptions{Options: Options{Conns: shape[0], Depth: shape[1], Size: size}, Work: kv.Options{Put: put, Keys: keys}}
					k, err := openKV(t, s, o, ledger)
					if err != nil {
						t.Fatal(err)
					}
					open := uint64(shape[0] * shape[1])
					for range 2 {
						res, err := k.Run(kvSlice)
						if err != nil {
							t.Fatalf("%+v: %v", o, err)
						}
						if !res.Steady || res.Total < 2*open || res.Latency.Count() < open || res.Bytes == 0 || !put && res.PerReply <= size || put && res.PerReply > 200 {
							t.Errorf("%+v: %+v", o, res)
						}
					}
					if err := k.Verify(); err != nil {
						t.Errorf("%+v: %v", o, err)
					}
				}
			}
		}
	}
}

// What another server has acknowledged is not in this one.
// Matrix: BE-07
func TestAServerWithoutWhatItAcknowledgedIsFound(t *testing.T) {
	const keys = 256
	o := KVOptions{Options: Options{Conns: 2, Depth: 2, Size: 100}, Work: kv.Options{Keys: keys}}
	old, ledger := kvServer(t, false), kv.NewLedger(keys)
	if _, err := openKV(t, old, o, ledger); err != nil {
		t.Fatal(err)
	}
	k, err := openKV(t, kvServer(t, false), o, ledger)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Verify(); !errors.Is(err, ErrReply) {
		t.Errorf("an empty server: %v", err)
	}
	behind := kvServer(t, false)
	if _, err := openKV(t, behind, o, kv.NewLedger(keys)); err != nil {
		t.Fatal(err)
	}
	o.Work.Put = true
	if k, err = openKV(t, old, o, ledger); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Run(kvSlice); err != nil {
		t.Fatal(err)
	}
	if k, err = openKV(t, behind, o, ledger); err != nil {
		t.Fatal(err)
	}
	if err := k.Verify(); !errors.Is(err, ErrReply) || !errors.Is(err, kv.ErrValue) {
		t.Errorf("a server with older values: %v", err)
	}
}

func TestWhatAKeyValueClientCannotDoIsRefused(t *testing.T) {
	for name, o := range map[string]KVOptions{
		"no connections":      {Work: kv.Options{Keys: 1}, Options: Options{Depth: 1, Size: 1}},
		"fewer keys than 2x2": {Work: kv.Options{Keys: 3}, Options: Options{Conns: 2, Depth: 2, Size: 1}},
		"too large a value":   {Work: kv.Options{Keys: 1}, Options: Options{Conns: 1, Depth: 1, Size: kv.MaxValue + 1}},
		"mode secure":         {Work: kv.Options{Keys: 1}, Options: Options{Conns: 1, Depth: 1, Size: 1, Secure: true}},
	} {
		if _, err := OpenKV(t.Context(), o, kv.NewLedger(o.Work.Keys)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
