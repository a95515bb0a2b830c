package handshake2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// buffered is an end of a connection that counts the calls that wait.
type buffered struct {
	*end
	unread, unsent []byte
	read, free     int // bytes; waits for the first free ones do not count
	waits          int
}

func (b *buffered) Queue(p []byte) { b.unsent = append(b.unsent, p...) }

func (b *buffered) Flush(ctx context.Context) error {
	if len(b.unsent) == 0 {
		return nil
	}
	b.waits++
	return b.send(ctx)
}

func (b *buffered) Write(ctx context.Context, p []byte) error {
	b.Queue(p)
	return b.Flush(ctx)
}

func (b *buffered) send(ctx context.Context) error {
	p := b.unsent
	b.unsent = nil
	return b.end.Write(ctx, p)
}

func (b *buffered) Await(ctx context.Context, enough func([]byte) bool) error {
	if enough(b.unread) {
		return nil
	}
	if b.read >= b.free {
		b.waits++
	}
	if err := b.send(ctx); err != nil {
		return err
	}
	for {
		more, closed := b.In.Take()
		b.unread = append(b.unread, more...)
		if enough(b.unread) || closed {
			return nil
		}
		select {
		case <-b.In.Woken():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *buffered) ReadFull(ctx context.Context, p []byte) error {
	err := b.Await(ctx, func(have []byte) bool { return len(have) >= len(p) })
	switch {
	case err != nil:
		return err
	case len(b.unread) == 0 && len(p) > 0:
		return io.EOF
	case len(b.unread) < len(p):
		return io.ErrUnexpectedEOF
	}
	b.unread = b.unread[copy(p, b.unread):]
	b.read += len(p)
	return nil
}

func newBufferedLink() (c, s *buffered) {
	x, y := linktest.New()
	return &buffered{end: x}, &buffered{end: y}
}

// meetBuffered runs a handshake over a link that counts, and one frame of the session each
// way. The acceptor's comes behind its last read: whoever takes the link over sends it.
func meetBuffered(t *testing.T, c handshake.Link, s *buffered, cc ConnectConfig, ac AcceptConfig) (x, y outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		y.stream, y.peer, y.err = Accept(ctx, s, ac)
		if y.err == nil {
			y.err = errors.Join(
				readOne(ctx, y.stream, frame.TagClientIdent),
				y.stream.WriteFrame(ctx, frame.TagServerIdent, []byte("hello")),
				s.send(ctx),
			)
		}
		if y.err != nil {
			s.Out.Close()
		}
	}()
	x.stream, x.peer, x.err = Connect(ctx, c, cc)
	if x.err == nil {
		x.err = errors.Join(
			x.stream.WriteFrame(ctx, frame.TagClientIdent, []byte("hello")),
			readOne(ctx, x.stream, frame.TagServerIdent),
		)
	}
	if x.err != nil {
		s.In.Close()
	}
	<-done
	return x, y
}

func readOne(ctx context.Context, s *Stream, want frame.Tag) error {
	tag, p, err := s.ReadFrame(ctx)
	if err == nil && (tag != want || string(p) != "hello") {
		err = fmt.Errorf("%v %q", tag, p)
	}
	return err
}

// An acceptor waits for the banner, for HELLO with AUTH_REQUEST, for each round of
// authentication, and for AUTH_SIGNATURE with the frame of the session. SERVER_IDENT waits
// for nothing. A connector waits for the banner, for HELLO, for each answer, and for
// SERVER_IDENT; the acceptor's signature comes with AUTH_DONE.
// Matrix: HS-24
func TestEachSideWaitsOncePerTurnOfThePeer(t *testing.T) {
	r := newRealm(t)
	cephx := func(peer wire.EntityType, mode auth.Mode) func() (ConnectConfig, AcceptConfig) {
		w := way{peer, mode, false}
		return func() (ConnectConfig, AcceptConfig) { return r.configs(r.client("admin", w), w) }
	}
	for _, c := range []struct {
		name                string
		config              func() (ConnectConfig, AcceptConfig)
		acceptor, connector int // the connector sometimes finds two turns at once
	}{
		{"none", noneConfigs, 3, 4},
		{"cephx crc, monitor", cephx(wire.Mon, auth.CRC), 4, 5},
		{"cephx secure, monitor", cephx(wire.Mon, auth.Secure), 4, 5},
		{"cephx crc, osd", cephx(wire.OSD, auth.CRC), 4, 5},
		{"cephx secure, osd", cephx(wire.OSD, auth.Secure), 4, 5},
		{"compression", func() (ConnectConfig, AcceptConfig) {
			cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
			wanting(&cc, &ac)
			return cc, ac
		}, 5, 6},
	} {
		for _, rev0 := range []bool{false, true} {
			cc, ac := c.config()
			cc.Rev0Only = rev0
			a, b := newBufferedLink()
			x, y := meetBuffered(t, a, b, cc, ac)
			if x.err != nil || y.err != nil {
				t.Fatal(c.name, x.err, y.err)
			}
			if b.waits != c.acceptor || a.waits > c.connector {
				t.Errorf("%s, rev0 %v: the acceptor waits %d times, want %d, the connector %d times, want at most %d",
					c.name, rev0, b.waits, c.acceptor, a.waits, c.connector)
			}
			if len(a.unread) != 0 || len(b.unread) != 0 {
				t.Errorf("%s: %d and %d bytes are left", c.name, len(a.unread), len(b.unread))
			}
		}
	}
}

// A peer that sends each frame on its own, in whatever pieces, changes nothing after the banner,
// whose bytes are read one by one.
// Matrix: HS-24
func TestTheAcceptorWaitsNoMoreForAPeerThatSendsFramesOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, single := range []bool{false, true} {
			cc, ac := noneConfigs()
			a, b := linktest.New()
			a.Single = single
			// The acceptor has taken all that came before.
			a.Tamper = func(_ int, p []byte) []byte { synctest.Wait(); return p }
			s := &buffered{end: b, free: wire2.BannerSize}
			x, y := meetBuffered(t, a, s, cc, ac)
			must(t, errors.Join(x.err, y.err))
			if s.waits != 2 {
				t.Errorf("single %v: the acceptor waits %d times after the banner, want 2", single, s.waits)
			}
		}
	})
}

// An acceptor that waits for two frames looks at the first one when it is there: a mistake
// ends the handshake though the second never comes.
func TestTheAcceptorDoesNotWaitBehindAMistake(t *testing.T) {
	_, ac := keyedConfigs(keyed{}, newKeyed(auth.CRC))
	cc, _ := keyedConfigs(newKeyed(auth.CRC), keyed{})
	c2s, _ := capture(t, cc, ac)
	list := pieces(t, c2s)
	hello, sig := list[1], list[len(list)-1]
	damaged := func(p piece, at int) []byte { b := bytes.Clone(p.bytes); b[at] ^= 1; return b }
	for _, c := range []struct {
		name   string
		before []piece
		wrong  []byte
		want   error
	}{
		{"HELLO that ends too early", list[:1], encode(t, frame.TagHello, hello.payload[:5]), wire.ErrTruncated},
		{"another frame for HELLO", list[:1], encode(t, frame.TagAuthDone, hello.payload), ErrUnexpectedFrame},
		{"damaged head", list[:1], damaged(hello, 3), frame.ErrPreambleCRC},
		{"damaged payload", list[:1], damaged(hello, 33), frame.ErrSegmentCRC},
		{"HELLO, and a damaged head", list[:2], damaged(list[2], 3), frame.ErrPreambleCRC},
		{"wrong signature", list[:len(list)-1], encode(t, frame.TagAuthSignature, make([]byte, wire2.SignatureSize)), ErrSignature},
		{"another frame for AUTH_SIGNATURE", list[:len(list)-1], encode(t, frame.TagClientIdent, sig.payload), ErrUnexpectedFrame},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			link := linktest.Scripted(append(join(c.before), c.wrong...))
			link.In.Reopen() // it stays silent
			begun := time.Now()
			_, _, err := Accept(ctx, &buffered{end: link}, ac)
			wantError(t, err)
			if !errors.Is(err, c.want) || time.Since(begun) != 0 {
				t.Errorf("%s: after %v: %v", c.name, time.Since(begun), err)
			}
		})
	}
}

// A side that fails sends what it has said before.
func TestAFailureSendsWhatIsQueued(t *testing.T) {
	other := newKeyed(auth.CRC)
	other.key = 8
	cc, ac := keyedConfigs(newKeyed(auth.CRC), other)
	a, b := newBufferedLink()
	x, y := meetBuffered(t, a, b, cc, ac)
	for _, err := range []error{x.err, y.err} {
		if !errors.Is(err, ErrSignature) || wantError(t, err).Terminal() {
			t.Error(err)
		}
	}
	if len(a.unsent)+len(b.unsent) != 0 {
		t.Errorf("%d and %d bytes are not sent", len(a.unsent), len(b.unsent))
	}
}

// A probe that fails behind a write finds that write sent, and no other.
func TestAProbeSeesEachWriteOnItsOwn(t *testing.T) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	_, s2c := capture(t, cc, ac)
	list := pieces(t, s2c)
	for n, last := range list[1:] {
		ac.Probe = probed(stopBehind{probe.Point{Step: probe.FrameWrite, Tag: last.tag}})
		a, b := newBufferedLink()
		var sent []byte
		b.Tamper = collecting(&sent)
		x, y := meetBuffered(t, a, b, cc, ac)
		if !errors.Is(y.err, errStopped) || x.err == nil {
			t.Errorf("%v: connector %v, acceptor %v", last.tag, x.err, y.err)
		}
		if want := join(list[:n+2]); !bytes.Equal(sent, want) {
			t.Errorf("%v: %d bytes are sent, want %d", last.tag, len(sent), len(want))
		}
	}
	// Nor are frames read ahead: it may stop the side before the next one comes.
	c2s, _ := capture(t, cc, AcceptConfig{Options: Options{EntityType: wire.OSD}, PeerAddr: clientAt, Auth: ac.Auth})
	seen := &recorder{}
	ac.Probe = probed(seen)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	link := linktest.Scripted(join(pieces(t, c2s)[:2]))
	if _, _, err := Accept(t.Context(), &buffered{end: link}, ac); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if !slices.Contains(seen.points, "after read HELLO") {
		t.Errorf("%q", seen.points)
	}
	if _, _, err := Accept(ctx, &buffered{end: link}, ac); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

var errStopped = errors.New("stopped here")

// stopBehind fails behind a step.
type stopBehind struct{ at probe.Point }

// At implements probe.Probe.
func (h stopBehind) At(_ context.Context, e probe.Event) error {
	if e.Point == h.at && e.When == probe.After {
		return errStopped
	}
	return nil
}
