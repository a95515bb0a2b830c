package control_test

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A peer refuses an attempt whose global_seq is not above that of the one before.
// The margin of a single hand-over would hide that the number was lost.
func TestGlobalSeqRisesThroughHandOvers(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	nonce := uint32(9)
	cfg := serverConfig(uring.Auto, 1)
	cfg.Nonce = &nonce
	m, at := serveEcho(t, cfg)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), at)
	s.progress(3)
	before := control.GlobalSeq(m)
	for generation := range 3 {
		m = succeed(t, ctx, m, cfg, echoAll())
		defer end(t, m)
		s.progress(3)
		now := control.GlobalSeq(m)
		if now <= before {
			t.Errorf("generation %d begins at %d, the one before was at %d", generation+2, now, before)
		}
		before = now
	}
	s.end()
}

func TestAConnectionWithOneAttemptHasOneAfterAHandOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	for _, once := range []bool{false, true} {
		ctx := deadline(t)
		stateful := control.StatefulServer()
		peerConfig, cfg := serverConfig(uring.Auto, 1), serverConfig(uring.Auto, 1)
		peerConfig.Default, peerConfig.Policies = &stateful, nil
		peerConfig.Name.ID = "5"
		cfg.Timeouts.InitialBackoff, cfg.Timeouts.MaxBackoff = time.Hour, time.Hour
		peer, to := serveEcho(t, peerConfig)
		m, _ := serveEcho(t, cfg)
		opts := []control.ConnectOption{control.WithPolicy(control.LosslessClient())}
		if once {
			opts = append(opts, control.Once())
		}
		c, err := m.Connect(to, wire.OSD, opts...)
		must(t, err)
		must(t, c.WaitReady(ctx))
		must(t, peer.Unbind())
		next := succeed(t, ctx, m, cfg)
		defer end(t, next)
		eventually(t, ctx, "the end of the only attempt", func() bool {
			list := next.Conns()
			if once {
				return len(list) == 0
			}
			return len(list) == 1 && list[0].State() == control.StateWait
		})
	}
}
