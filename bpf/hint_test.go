package bpf

import (
	"errors"
	"testing"
)

func TestHintPortHintsAtTheCore(t *testing.T) {
	for _, r := range []PortRange{{61000, 65535}, {61003, 61020}, {1, 40}, {65530, 65535}, {0, 9}} {
		for cores := 1; cores <= 7; cores++ {
			for core := range cores {
				seen := map[uint16]bool{}
				for attempt := range 2 * r.Len() {
					port := HintPort(r, core, cores, attempt)
					if port == 0 {
						if r.Len() > cores {
							t.Fatalf("%v: no port for core %d of %d", r, core, cores)
						}
						continue
					}
					if !r.Contains(port) || int(port)%cores != core {
						t.Fatalf("%v: port %d for core %d of %d", r, port, core, cores)
					}
					seen[port] = true
				}
				want := 0
				for p := max(1, int(r.First)); p <= int(r.Last); p++ {
					if p%cores == core {
						want++
					}
				}
				if len(seen) != want {
					t.Errorf("%v: %d ports for core %d of %d, want %d", r, len(seen), core, cores, want)
				}
			}
		}
	}
}

func TestHintPortRefusesNonsense(t *testing.T) {
	r := PortRange{61000, 61099}
	for _, c := range []struct{ core, cores, attempt int }{{-1, 4, 0}, {4, 4, 0}, {0, 0, 0}, {0, -1, 0}, {0, 4, -1}} {
		if port := HintPort(r, c.core, c.cores, c.attempt); port != 0 {
			t.Errorf("%+v: port %d", c, port)
		}
	}
	if port := HintPort(PortRange{9, 8}, 0, 1, 0); port != 0 {
		t.Errorf("empty range: port %d", port)
	}
}

func TestProposedHintRangeKeepsClear(t *testing.T) {
	usual := PortRange{32768, 60999}
	for _, c := range []struct {
		name      string
		cores     int
		ephemeral PortRange
		avoid     []PortRange
		want      PortRange
	}{
		{"above the usual ephemeral range", 8, usual, nil, PortRange{61000, 65535}},
		{"whole cores only", 5, usual, nil, PortRange{61000, 65534}},
		{"larger part above", 4, usual, []PortRange{{62000, 62000}}, PortRange{62001, 65532}},
		{"nothing above", 4, PortRange{32768, 65535}, nil, PortRange{1024, 32767}},
		{"too little above", 100, usual, nil, PortRange{1024, 32723}},
		{"services below", 4, PortRange{32768, 65535}, []PortRange{{6800, 7568}, {3300, 3300}, {6789, 6789}}, PortRange{7569, 32764}},
		{"overlapping ranges to avoid", 2, PortRange{20000, 65535}, []PortRange{{1024, 15000}, {3000, 4000}, {14000, 16001}}, PortRange{16002, 19999}},
		{"ranges to avoid in any order", 2, PortRange{20000, 65535}, []PortRange{{9000, 19999}, {1024, 8000}}, PortRange{8001, 8998}},
		{"ephemeral range in privileged ports", 2, PortRange{100, 60000}, nil, PortRange{60001, 65534}},
	} {
		got, err := proposeHintRange(c.cores, c.ephemeral, c.avoid...)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestNoHintRangeIsAnError(t *testing.T) {
	for _, c := range []struct {
		cores     int
		ephemeral PortRange
	}{{4, PortRange{1024, 65535}}, {4, PortRange{1, 65533}}, {0, PortRange{32768, 60999}}, {MaxCores + 1, PortRange{32768, 60999}}} {
		if r, err := proposeHintRange(c.cores, c.ephemeral); !errors.Is(err, errNoHintRange) {
			t.Errorf("%+v: %v, %v", c, r, err)
		}
	}
}

func TestLocalHintRangeIsAccepted(t *testing.T) {
	r, err := LocalHintRange(2, PortRange{61000, 61010})
	if errors.Is(err, errNoHintRange) {
		ephemeral, err := ephemeralPorts()
		if err != nil || ephemeral.Len() < 60000 {
			t.Fatalf("no range outside %v: %v", ephemeral, err)
		}
		return
	}
	must(t, err)
	if r.overlaps(PortRange{61000, 61010}) {
		t.Errorf("%v meets what was to be avoided", r)
	}
	must(t, check(Policy{Rules: UseHint, Cores: 2, Hint: r}, 2))
}

func FuzzParsePorts(f *testing.F) {
	for _, s := range []string{"80", "32768-60999", "5-4", "-", "", "1-2-3", "65536", "+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parsePorts(s)
		if err == nil && (r.First > r.Last || r.Len() == 0) {
			t.Errorf("%q: %v", s, r)
		}
	})
}
