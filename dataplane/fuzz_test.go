package dataplane

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
)

// verdict is what a stream of bytes came to.
type verdict struct {
	messages []received
	acks     int
	bad      bool // ended by a bad frame
	ended    bool
}

// arriveCut has a stream arrive, cut at the given places, and then the end.
func (c *conn) arriveCut(stream, cuts []byte) {
	c.t.Helper()
	for i := 0; len(stream) > 0; i++ {
		n := len(stream)
		if i < len(cuts) {
			n = min(1+int(cuts[i]), n)
		}
		c.sock.Arrive(stream[:n])
		stream = stream[n:]
		if i%2 == 0 {
			c.settle()
		}
	}
	c.settle()
	c.sock.HangUp()
	c.settle()
}

// feedStream gives a connection all of stream, cut at the given places, and
// then the end.
func feedStream(t *testing.T, stream, cuts []byte, receive ReceiveMode, rev frame.Revision) verdict {
	b := newBed(t, func(cfg *Config, d *fakedriver.Driver) {
		receiving(receive)(cfg, d)
		cfg.LargeFrom = 300
	})
	defer b.close()
	c := b.connRev(OpenOptions{Lossy: true}, rev, false)
	lim := frame.Limits{Control: 1 << 10, Front: 1 << 12, Middle: 1 << 12, Data: 1 << 14}
	c.h.rx.dec.SetLimits(lim)
	c.arriveCut(stream, cuts)
	err := c.own.fault()
	if c.c.Snapshot().PoolInUse != 0 {
		t.Fatalf("%d bytes of buffers are lost", c.c.Snapshot().PoolInUse)
	}
	return verdict{c.own.list(), int(c.h.stats.unaskedAcks), errors.Is(err, frame.ErrFrame) || errors.Is(err, ErrUnexpectedFrame), err != nil}
}

// Matrix: FR-24
func FuzzFrameStream(f *testing.F) {
	for _, rev := range []frame.Revision{frame.Rev0, frame.Rev1} {
		stream := newPeerCodec(f, rev, false).stream(messagesOf([][3]int{{0, 0, 0}, {10, 3, 299}, {1, 0, 300}, {0, 0, 5000}, {4000, 0, 0}}))
		f.Add(stream, []byte{1, 2, 30, 255, 7}, rev == frame.Rev0)
		damaged := bytes.Clone(stream)
		damaged[len(damaged)/2] ^= 1
		f.Add(damaged, []byte{200, 200, 200}, rev == frame.Rev0)
		f.Add(stream[:len(stream)-3], bytes.Repeat([]byte{0}, 50), rev == frame.Rev0)
	}
	f.Fuzz(func(t *testing.T, stream, cuts []byte, rev0 bool) {
		if len(stream) > 1<<17 {
			return
		}
		rev := frame.Rev1
		if rev0 {
			rev = frame.Rev0
		}
		want := feedStream(t, stream, nil, ReceiveReady, rev)
		if !want.ended {
			t.Fatal("the end of the stream was not seen")
		}
		for _, receive := range receiveModes {
			if got := feedStream(t, stream, cuts, receive, rev); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, cut: %d messages, bad=%v; in one piece: %d messages, bad=%v",
					receive, len(got.messages), got.bad, len(want.messages), want.bad)
			}
		}
	})
}
