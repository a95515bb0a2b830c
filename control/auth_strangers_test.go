package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
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

// wholeClient is everything that a client with method none sends up to its first
// message, without having seen an answer.
func wholeClient(t *testing.T, to wire.Addr, features wire.Features, data []byte) []byte {
	t.Helper()
	enc := frame.NewEncoder(frame.Rev1)
	out := wire2.Banner{Supported: wire.BannerRevision1}.AppendTo(nil)
	add := func(tag frame.Tag, segs ...[]byte) {
		var err error
		out, err = enc.AppendFrame(out, tag, segs...)
		must(t, err)
	}
	name := entity(t, "client.admin")
	request := append(name.AppendTo([]byte{10}), make([]byte, 8)...)
	ident := wire2.ClientIdent{
		Addrs: wire.AddrVec{wire.Addr{Type: wire.AddrAny, Nonce: 4711, AddrPort: to.AddrPort}.WithPort(0)}, TargetAddr: to, GID: -1, GlobalSeq: 1,
		Supported: features, Flags: wire.IdentLossy,
	}
	var head [frame.MessageHeaderSize]byte
	(&frame.MessageHeader{Seq: 1, TID: 99, Type: 42}).Put(&head)
	add(frame.TagHello, wire2.Hello{EntityType: wire.Client, PeerAddr: to}.AppendTo(nil))
	add(frame.TagAuthRequest, wire2.AuthRequest{Method: uint32(auth.None), PreferredModes: []uint32{uint32(auth.CRC)}, Payload: request}.AppendTo(nil))
	add(frame.TagAuthSignature, make([]byte, wire2.SignatureSize))
	add(frame.TagClientIdent, ident.AppendTo(nil))
	add(frame.TagKeepalive2, make([]byte, 8))
	add(frame.TagMessage, head[:], []byte("front"), nil, data)
	return out
}

// A client that sends its handshake, a keepalive and a
// message without waiting, in one piece or byte by byte, gets every answer in order; what
// comes behind the handshake is for the session and is neither lost nor read twice; the
// features are those of both; and no timer has to run out for any of it.
// Matrix: HS-14, HS-15, HS-16, HS-22, HI-26
func TestAClientThatDoesNotWaitIsServedInOrder(t *testing.T) {
	for _, step := range []int{1 << 20, 1, 7, 100, 1460} {
		t.Run(fmt.Sprintf("%d bytes at a time", step), func(t *testing.T) {
			server := newParty(t, control.Config{Name: entity(t, "mon.a"), Clock: newHandClock()}).bind(t)
			data := bytes.Repeat([]byte("data "), 20_000)
			if step < 100 {
				data = data[:300]
			}
			features := wire.FeaturesPacific &^ 1
			c := server.call(t)
			all := wholeClient(t, server.addr, features, data)
			go func() {
				for len(all) > 0 {
					n := min(step, len(all))
					if _, err := c.Write(all[:n]); err != nil {
						return
					}
					all = all[n:]
				}
			}()
			banner := make([]byte, wire2.BannerSize)
			_, err := io.ReadFull(c, banner)
			must(t, err)
			dec := frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
			var tags []frame.Tag
			for len(tags) < 6 {
				f := readFrame(t, c, dec)
				tags = append(tags, f.Tag)
				switch f.Tag {
				case frame.TagServerIdent:
					si, err := wire2.DecodeServerIdent(f.Seg[0])
					must(t, err)
					if si.Supported&features == 0 {
						t.Errorf("features %v", si.Supported)
					}
				case frame.TagMessage:
					h, err := frame.ParseMessageHeader(f.Seg[0])
					must(t, err)
					if h.TID != 99 || string(f.Seg[1]) != "front" || !bytes.Equal(f.Seg[3], data) {
						t.Errorf("echo %+v with %d bytes", h, len(f.Seg[3]))
					}
				}
			}
			want := []frame.Tag{frame.TagHello, frame.TagAuthDone, frame.TagAuthSignature, frame.TagServerIdent, frame.TagKeepalive2Ack, frame.TagMessage}
			if fmt.Sprint(tags) != fmt.Sprint(want) {
				t.Errorf("answers %v, want %v", tags, want)
			}
			conns := server.m.Conns()
			if n := connStats(t, conns[0]).IO.MessagesIn; n != 1 {
				t.Errorf("%d messages arrived", n)
			}
			if len(conns) != 1 || conns[0].Info().Features&^features != 0 || conns[0].Info().Features == 0 {
				t.Errorf("features of the connection: %+v", conns)
			}
		})
	}
}

// readFrame reads one frame that is not encrypted.
func readFrame(t *testing.T, r io.Reader, dec *frame.Decoder) frame.Frame {
	t.Helper()
	head := make([]byte, dec.HeadSize())
	_, err := io.ReadFull(r, head)
	must(t, err)
	h, err := dec.Open(head)
	must(t, err)
	rest := make([]byte, dec.RestSize(h))
	_, err = io.ReadFull(r, rest)
	must(t, err)
	f, err := dec.Finish(h, head, rest)
	must(t, err)
	return f
}
