package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Session frames that are late, impossible, or incomplete.

// RA-22: an old socket of the peer, held between AUTH_SIGNATURE and
// CLIENT_IDENT, wakes up when its successor is established.
func TestSupersededSocketThatWakesUpChangesNothing(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", true)
		late := s.dial()
		late.Handshake()
		s.must(late)
		p, _ := s.establish(clientCookie, 6)
		s.talks(p, 1)
		late.SendPayload(frame.TagClientIdent, late.ClientIdent(clientCookie, 5))
		late.SendMessage(frame.MessageHeader{Seq: 2, TID: 99}, []byte("ignored"), nil, nil)
		late.ExpectEnd()
		s.must(late)
		s.talks(p, 2)
		s.node.Await(ctx, "closed A(1,1,0,0)", "established A(1,1,0,1)")
	})
}

// A peer that sends the wrong thing at the first session frame is closed
// without a word.
func TestImpossibleIdentIsClosed(t *testing.T) {
	for name, change := range map[string]func(ci *wire.ClientIdent){
		"no address":     func(ci *wire.ClientIdent) { ci.Addrs = nil },
		"blank address":  func(ci *wire.ClientIdent) { ci.Addrs = wire.AddrVec{{}} },
		"other target":   func(ci *wire.ClientIdent) { ci.TargetAddr.Nonce++ },
		"not dial-able":  func(ci *wire.ClientIdent) { ci.Addrs[0] = ci.Addrs[0].WithPort(0) },
		"another family": func(ci *wire.ClientIdent) { ci.TargetAddr.Type = wire.AddrLegacy },
	} {
		t.Run(name, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				s := playTo(t, ctx, v, "LP", false)
				p := s.dial()
				p.Handshake()
				ci := p.ClientIdent(clientCookie, 1)
				change(&ci)
				p.SendPayload(frame.TagClientIdent, ci)
				p.ExpectEnd()
				s.must(p)
				s.node.Await(ctx, "closed A(1,1,0,0)")
			})
		})
	}
}

// A peer without a required feature is told so, and may try again.
func TestMissingFeaturesAreNamed(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		s := playTo(t, ctx, v, "LP", false)
		p := s.dial()
		p.Handshake()
		ci := p.ClientIdent(clientCookie, 1)
		ci.Supported &^= wire.FeatureMsgAddr2
		p.SendPayload(frame.TagClientIdent, ci)
		mf, err := wire.DecodeIdentMissingFeatures(p.Expect(frame.TagIdentMissingFeatures))
		s.must(p)
		if err != nil || mf.Features != wire.FeatureMsgAddr2 {
			t.Errorf("missing %v (%v), want %v", mf.Features, err, wire.FeatureMsgAddr2)
		}
		p.SendPayload(frame.TagClientIdent, p.ClientIdent(clientCookie, 2))
		p.ExpectServerIdent()
		s.must(p)
	})
}
