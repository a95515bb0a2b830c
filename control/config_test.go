package control_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
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

// Real OSDs take a peer for the osd of its number, and its transaction ids for that osd's.
func TestTheNumberOfAnOsdIsTheOneInItsName(t *testing.T) {
	server := newParty(t, control.Config{Name: entity(t, "osd.7")}).bind(t)
	policy := control.LosslessPeer()
	client := newParty(t, control.Config{Name: entity(t, "osd.12"), Default: &policy})
	conn, err := client.dial(t, server, wire.OSD)
	must(t, err)
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

// Where only one side leaves the crcs out, no connection comes about.
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

// A nonce that was given is that of one process.
// Matrix: HS-18
func TestTheFirstProgramWithAWrongNonceEndsInAnError(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, policy := range []string{"LC", "LLC"} {
			server := nodeOf(t, v, "osd.0", map[string]string{"LC": "SLS", "LLC": "SFS"}[policy], 7)
			client := nodeOf(t, v, "client.1", policy, 2)
			conn := connect(t, client, server.Addr.WithNonce(8), wire.OSD)
			short, cancel := context.WithTimeout(ctx, daemonHandshake)
			err := conn.WaitReady(short)
			cancel()
			var e *control.Error
			if !errors.Is(err, control.ErrStuck) || !errors.As(err, &e) || e.Stage != control.StageIdent || !strings.Contains(e.Advice(), "nonce") {
				t.Errorf("%s: %v", policy, err)
			}
			if !strings.HasSuffix(err.Error(), e.Advice()) {
				t.Errorf("%s: the error does not say what to look at: %v", policy, err)
			}
			if conn.State() == control.StateClosing {
				t.Errorf("%s: the connection has given up", policy)
			}
		}
	})
}

// What may mend is waited for, and the log has a line about it, not one for each
// attempt.
func TestAServerThatComesLaterIsWaitedForAndLogged(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	at := msgrtest.ReservePort(t) // nobody listens there
	var log logText
	client := nodeOf(t, variants[0], "client.1", "LLC", 2, func(c *nodetest.NodeConfig) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.Timeouts.InitialBackoff, c.Timeouts.MaxBackoff = time.Millisecond, 10*time.Millisecond
	})
	conn := connect(t, client, wire.Addr{Type: wire.AddrMsgr2, AddrPort: at}, wire.OSD)
	ready := async(func() error { return conn.WaitReady(ctx) })
	eventually(t, ctx, "some attempts", func() bool { return connStats(t, conn).Counters.Attempts > 8 })
	select {
	case err := <-ready:
		t.Fatalf("not waited for: %v", err)
	default:
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "nothing listens there") {
		t.Errorf("logged:\n%s", text)
	}
	p := control.StatefulServer()
	server := startMessenger(t, control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &p})
	must(t, onlyError(server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: at})))
	check(t, <-ready)
}
