package control_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// HI-01 and HI-25 for the frames of sessions: each field with each value that could
// be taken for a sign, a size or an end.

// wildPayloads are payload with a wild value in each window of 1, 2, 4 and 8 bytes.
func wildPayloads(payload []byte) (out [][]byte) {
	for _, width := range []int{1, 2, 4, 8} {
		for at := 0; at+width <= len(payload); at++ {
			for _, v := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1} {
				if width < 8 && v>>(8*width) != 0 && v != 1<<64-1 {
					continue // the same as a smaller one
				}
				var b [8]byte
				binary.LittleEndian.PutUint64(b[:], v)
				p := bytes.Clone(payload)
				if copy(p[at:], b[:width]); !bytes.Equal(p, payload) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// honestTalk is a session between honest ends, beside others.
func honestTalk(t *testing.T, ctx context.Context, v variant, server *msgrtest.Node) (more func()) {
	t.Helper()
	client := nodeOf(t, v, "osd.9", "LP", 9)
	c := client.Dial(server)
	var got []uint64
	return func() {
		t.Helper()
		tid := uint64(len(got) + 1)
		send(t, c, tid)
		got = append(got, tid+1000)
		receives(t, ctx, client, got...)
	}
}

func TestAnyWildFieldOfASessionRequestHarmsNobodyElse(t *testing.T) {
	for _, policy := range []string{"SLS", "SFS", "LP"} {
		t.Run(policy, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, _ context.Context, v variant) {
				ctx, cancel := context.WithTimeout(context.Background(), 20*sessionTime)
				defer cancel()
				s := playTo(t, ctx, v, policy, true, withChain(echoer()))
				more := honestTalk(t, ctx, v, s.node)
				more()
				victim, si := s.establish(clientCookie, 5)
				defer victim.Close()
				probe := s.dial()
				for _, request := range []struct {
					tag     frame.Tag
					payload []byte
				}{
					{frame.TagClientIdent, probe.ClientIdent(clientCookie, 6).AppendTo(nil)},
					{frame.TagSessionReconnect, probe.SessionReconnect(clientCookie, si.Cookie, 6, 1, 0).AppendTo(nil)},
				} {
					for _, p := range sampleOf(t, wildPayloads(request.payload), 97) {
						w := s.dial()
						w.Handshake()
						w.Send(request.tag, p)
						s.must(w)
						w.Next() // an answer, or the end
						w.Close()
					}
				}
				more()
				if st, err := s.node.Stats(); err != nil || st.Counters.IllegalTransitions != 0 {
					t.Errorf("%+v %v", st.Counters, err)
				}
			})
		})
	}
}

// identOf takes an accepted socket up to its CLIENT_IDENT.
func identOf(p *msgrtest.Peer) {
	p.Handshake()
	p.ExpectClientIdent()
}

func TestAnyWildFieldOfASessionAnswerEndsAtItsConnection(t *testing.T) {
	everyVariant(t, func(t *testing.T, _ context.Context, v variant) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*sessionTime)
		defer cancel()
		l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{
			Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Number: 2, Addr: wire.Addr{Nonce: 2}, Rev0: v.rev0,
		})
		must(t, err)
		defer l.Close()
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(echoer()))
		node := nodeOf(t, v, "client.9", "LLC", 9)
		good := node.Dial(server)
		play := func(tag frame.Tag, payload func(p *msgrtest.Peer) []byte) {
			c, err := node.Connect(l.Addr, wire.OSD, control.Anonymous(), control.Once())
			must(t, err)
			p := l.Accept(ctx)
			for identOf(p); p.Err() != nil && ctx.Err() == nil; identOf(p) {
				p.Close() // of a connection that is over
				p = l.Accept(ctx)
			}
			p.Send(tag, payload(p))
			p.SendPayload(frame.TagKeepalive2, msgrtest.Keepalive{})
			p.Next() // the answer of one that is ready, or the end
			p.Close()
			c.MarkDown()
			<-c.Closed()
		}
		var idents [][]byte
		play(frame.TagServerIdent, func(p *msgrtest.Peer) []byte {
			si := p.ServerIdent(serverCookie, 1).AppendTo(nil)
			idents = wildPayloads(si)
			return si
		})
		for _, wild := range sampleOf(t, idents, 97) {
			play(frame.TagServerIdent, func(*msgrtest.Peer) []byte { return wild })
		}
		for _, wild := range sampleOf(t, wildPayloads(make([]byte, 8)), 7) {
			play(frame.TagIdentMissingFeatures, func(*msgrtest.Peer) []byte { return wild })
		}
		send(t, good, 1)
		receives(t, ctx, node, 1001)
	})
}
