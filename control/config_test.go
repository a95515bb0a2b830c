package control_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func TestAConfigurationThatCannotBeIsAnErrorThatNamesTheSetting(t *testing.T) {
	for says, change := range map[string]func(*control.Config){
		"entity name":       func(c *control.Config) { c.Name = wire.EntityName{} },
		"without an ID":     func(c *control.Config) { c.Name = wire.EntityName{Type: wire.Client} },
		"handshake timeout": func(c *control.Config) { c.Timeouts.Handshake = -1 },
		"back-off":          func(c *control.Config) { c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = 2*time.Second, time.Second },
		"steering":          func(c *control.Config) { c.Steer = "nowhere" },
		"ports to bind":     func(c *control.Config) { c.Binding.Ports = bpf.PortRange{Last: 8} },
		"bind retries":      func(c *control.Config) { c.Binding.Retries = -1 },
		"aligned":           func(c *control.Config) { c.Receiving.AlignFrom = -1 },
		"half-open":         func(c *control.Config) { c.Door.HalfOpen = -1 },
		"compression":       func(c *control.Config) { c.Protocol.Compression.Methods = methods(wire.CompressionMethod(9)) },
		"socket failure":    func(c *control.Config) { c.Diagnostics.Inject.SocketFailures = -1 },
		"probability 1.1":   func(c *control.Config) { c.Diagnostics.Inject.Handshakes.Probability = 1.1 },
		"probability NaN":   func(c *control.Config) { c.Diagnostics.Inject.Handshakes.Probability = math.NaN() },
	} {
		cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: loop.Config{Cores: 1}}
		change(&cfg)
		if _, err := control.New(cfg); !errors.Is(err, control.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// Where only one side leaves the crcs out, no connection comes about.
// Matrix: FR-16
func TestOneSideWithoutDataCRCDoesNotConnect(t *testing.T) {
	for _, client := range []bool{true, false} {
		a := newParty(t, control.Config{Name: entity(t, "client.admin"), Protocol: control.Protocol{NoDataCRC: client}})
		b := newParty(t, control.Config{Name: entity(t, "osd.0"), Protocol: control.Protocol{NoDataCRC: !client}}).bind(t)
		conn, err := a.dial(t, b, wire.OSD)
		if err == nil {
			t.Fatalf("connected: %+v", conn.Info())
		}
		if !client && !errors.Is(err, frame.ErrSegmentCRC) {
			t.Errorf("the client that checks says %v", err)
		}
	}
}

// offset is where p lies within its page.
func offset(p []byte) uintptr { return reflect.ValueOf(p).Pointer() % 4096 }

func TestBlocksOf4KiBBeginOnAPageWhereThatIsAskedFor(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		const blocks = 20
		got := make(chan uintptr, blocks)
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
			got <- offset(m.Data)
			return true
		}}), func(c *nodetest.NodeConfig) { c.Receiving.AlignFrom = 4096 })
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		for i := range blocks {
			m := control.NewMessage(1, make([]byte, i), make([]byte, 4096+i%2*100))
			if err := conn.SendContext(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		for i := range blocks {
			select {
			case at := <-got:
				if at != 0 {
					t.Errorf("block %d begins %d bytes behind a page", i, at)
				}
			case <-ctx.Done():
				t.Fatal("a block does not arrive")
			}
		}
	})
}

// Real OSDs take a peer for the osd of its number, and its transaction ids for that osd's.
func TestTheNumberOfAnOsdIsTheOneInItsName(t *testing.T) {
	server := newParty(t, control.Config{Name: entity(t, "osd.7")}).bind(t)
	policy := control.LosslessPeer()
	client := newParty(t, control.Config{Name: entity(t, "osd.12"), Default: &policy})
	conn, err := client.dial(t, server, wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	if n := conn.Info().PeerNumber; n != 7 {
		t.Errorf("osd.7 says that it is %d", n)
	}
	if n := server.accepted(t).Info().PeerNumber; n != 12 {
		t.Errorf("osd.12 says that it is %d", n)
	}
	for _, cfg := range []control.Config{
		{Name: entity(t, "osd.7"), Number: 8},
		{Name: wire.EntityName{Type: wire.OSD, ID: "a"}},
		{Name: wire.EntityName{Type: wire.OSD, ID: "-1"}},
	} {
		if err := cfg.Validate(); !errors.Is(err, control.ErrConfig) {
			t.Errorf("%v with number %d: %v", cfg.Name, cfg.Number, err)
		}
	}
	if cfg := (control.Config{Name: entity(t, "osd.7"), Number: 7}); cfg.Validate() != nil {
		t.Errorf("osd.7 with number 7: %v", cfg.Validate())
	}
}
