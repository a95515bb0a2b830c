package steering

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// following are hints that are followed from ports of a range, at a time that
// stands still.
func following(ports bpf.PortRange) (h *Hints, now *time.Time) {
	now = new(time.Time)
	*now = time.Unix(1000, 0)
	return NewHints(HintsConfig{
		Follow: true, Ports: ports, Now: func() time.Time { return *now }, Lines: loop.NewRationedLogger(slog.New(slog.DiscardHandler), time.Now),
	}), now
}

func TestHintedPortsLeadToTheOwner(t *testing.T) {
	h, _ := following(bpf.PortRange{First: 61000, Last: 61999})
	for _, to := range []string{"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"} {
		peer := netip.MustParseAddr(to)
		ports := h.Ports(Owner{Core: 3, Cores: 7}, peer)
		if len(ports) != HintAttempts {
			t.Fatalf("%d ports", len(ports))
		}
		seen := map[uint16]bool{}
		for _, p := range ports {
			if p.Port()%7 != 3 || p.Port() < 61000 || p.Port() > 61999 || seen[p.Port()] {
				t.Errorf("port %d", p.Port())
			}
			seen[p.Port()] = true
			if !p.Addr().IsUnspecified() || p.Addr().Is4() != peer.Unmap().Is4() {
				t.Errorf("bind to %v for a peer at %v", p, peer)
			}
		}
	}
	peer := netip.MustParseAddr("192.0.2.1")
	if ports := h.Ports(Owner{}, peer); ports != nil {
		t.Errorf("ports %v without a hint", ports)
	}
	small, _ := following(bpf.PortRange{First: 61000, Last: 61007})
	if ports := small.Ports(Owner{Core: 1, Cores: 4}, peer); len(ports) != 2 {
		t.Errorf("a range with two ports for the core gives %v", ports)
	}
	if ports := NewHints(HintsConfig{Ports: small.cfg.Ports, Now: time.Now}).Ports(Owner{Core: 1, Cores: 4}, peer); ports != nil {
		t.Errorf("ports %v where no hint is followed", ports)
	}
}

func TestAPauseIsForOneHostAndEnds(t *testing.T) {
	h, now := following(bpf.PortRange{First: 61000, Last: 61999})
	owner, peer := Owner{Core: 1, Cores: 4}, netip.MustParseAddr("192.0.2.1")
	h.Pause(netip.MustParseAddr("::ffff:192.0.2.1"), "refused", func(n *HintCounts) { n.Refused++ })
	if h.Ports(owner, peer) != nil || h.Counts() != (HintCounts{Refused: 1}) {
		t.Errorf("hints go on, counted %+v", h.Counts())
	}
	if h.Ports(owner, netip.MustParseAddr("192.0.2.2")) == nil {
		t.Error("another host gets no hints")
	}
	*now = now.Add(HintPause)
	if h.Ports(owner, peer) == nil {
		t.Error("the pause does not end")
	}
}

// Matrix: RL-08
func TestThePausesOfManyHostsAreBounded(t *testing.T) {
	h, _ := following(bpf.PortRange{First: 61000, Last: 61999})
	for i := range 3 * hintPauses {
		h.Pause(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "refused", func(*HintCounts) {})
		if n := len(h.paused); n > hintPauses {
			t.Fatalf("%d hosts are remembered", n)
		}
	}
}
