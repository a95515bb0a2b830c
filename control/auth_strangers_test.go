package control_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// call opens a TCP connection to a party.
func (e *party) call(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", e.addr.AddrPort.String(), authPatience)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(authPatience)))
	return c
}

// A peer that can never do is tried once, also by a lossless connection,
// and the reset event comes.
// Matrix: HS-05, HS-09, HI-25, AU-04
func TestAPeerThatCanNeverDoIsTriedOnce(t *testing.T) {
	banner := wire2.Banner{Supported: 1 | 1<<63, Required: 1 << 63}.AppendTo(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	calls := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls <- struct{}{}
			_, _ = c.Write(banner)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	strange := wire.Addr{Type: wire.AddrMsgr2, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
	mon := newParty(t, control.Config{Name: entity(t, "mon.a")}).bind(t)
	_, keyed := cephxPair(t, []auth.Mode{auth.CRC}, []auth.Mode{auth.CRC})
	strict := newParty(t, control.Config{Name: entity(t, "mon.b"), Auth: control.Auth{Server: keyed}}).bind(t)
	policy := control.LosslessClient()
	for _, c := range []struct {
		name string
		to   wire.Addr
		peer wire.EntityType
		want error
	}{{"features", strange, wire.Mon, handshake.ErrFeatures}, {"type", mon.addr, wire.OSD, handshake.ErrPeerType}, {"method", strict.addr, wire.Mon, auth.ErrNoMethod}} {
		reset := make(chan error, 9)
		m := authMessenger(t, control.Config{
			Name: entity(t, "client.admin"), Default: &policy, Timeouts: control.Timeouts{InitialBackoff: time.Microsecond, MaxBackoff: time.Microsecond},
		}, &control.Dispatcher{Reset: func(c *control.Conn, _ bool) { reset <- c.Err() }})
		conn := connect(t, m, c.to, c.peer)
		arrives(t, "the end of the connection", conn.Closed())
		if err := <-reset; !errors.Is(err, c.want) || errors.Is(err, control.ErrAuth) != (c.name == "method") || len(reset) > 0 {
			t.Errorf("%s: reset with %v, and %d more", c.name, err, len(reset))
		}
		if st, _ := conn.Stats(); st.Counters.Attempts != 1 {
			t.Errorf("%s: %d attempts", c.name, st.Counters.Attempts)
		}
	}
	if n := statsOf(t, strict.m).Counters.Accepted; n != 1 {
		t.Errorf("who refuses was called %d times", n)
	}
	if n := len(calls); n != 1 {
		t.Errorf("the strange peer was called %d times", n)
	}
}

// A peer of a type that nobody has heard of gets the default policy.
// Matrix: HS-10, PO-14
func TestAnUnknownTypeOfPeerHasTheDefaultPolicy(t *testing.T) {
	stateful := control.StatefulServer()
	server := newParty(t, control.Config{
		Name: entity(t, "mon.a"), Default: &stateful, Policies: map[wire.EntityType]control.Policy{wire.Client: control.StatelessServer()},
	}).bind(t)
	lossless := control.LosslessClient()
	for _, c := range []struct {
		typ   wire.EntityType
		lossy bool
	}{{wire.Client, true}, {0x77, false}, {wire.OSD, false}} {
		client := newParty(t, control.Config{Name: wire.EntityName{Type: c.typ, ID: "1"}, Default: &lossless})
		conn, err := client.dial(t, server, wire.Mon)
		must(t, err)
		if i := conn.Info(); i.Lossy != c.lossy {
			t.Errorf("type %#x: lossy %v", uint8(c.typ), i.Lossy)
		}
	}
}

// dribble writes one byte at a time.
type dribble struct{ net.Conn }

func (d dribble) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		_, err = d.Conn.Write(p[n : n+1])
		n++
	}
	return n, err
}

// No timer has to run out for a handshake that comes byte by byte, with a message behind it. The
// features of the connection are those of both.
// Matrix: HS-15, HS-22
func TestAHandshakeThatComesByteByByteSucceeds(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1, newHandClock().of)
		conn, err := net.Dial("tcp", server.Addr.AddrPort.String())
		must(t, err)
		p := msgrtest.PeerOn(ctx, msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: peerAddr(2), Rev0: v.rev0}, dribble{conn}, server.Addr)
		defer p.Close()
		p.Handshake()
		ident := p.ClientIdent(7, 1)
		ident.Supported &^= 1
		p.SendPayload(frame.TagClientIdent, ident)
		p.ExpectServerIdent()
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: 1}, []byte("front"), nil, bytes.Repeat([]byte("data"), 50))
		must(t, p.Err())
		receives(t, ctx, server, 1)
		if got := first(t, ctx, server).Info().Features; got&^ident.Supported != 0 || got == 0 {
			t.Errorf("features %v, the peer has %v", got, ident.Supported)
		}
	})
}
