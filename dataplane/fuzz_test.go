package dataplane

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
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
	c.hangUp()
}

// fuzzModes are the framings whose damage no key hides.
var fuzzModes = slices.Concat(wireModes[:2], msgr1Modes)

// feedStream gives a connection all of stream, cut at the given places, and
// then the end.
func feedStream(t *testing.T, stream, cuts []byte, receive loop.ReceiveMode, mode wireMode) verdict {
	b := newBed(t, func(cfg *loop.Config, d *fakedriver.Driver) {
		receiving(receive)(cfg, d)
		cfg.LargeFrom = 300
	})
	defer b.close()
	ts := &loop.Throttles{Frames: loop.NewThrottle(1), Bytes: loop.NewThrottle(1 << 12), Shared: loop.NewThrottle(1 << 12)}
	c := b.conn(OpenOptions{Lossy: true, Throttles: ts}, mode)
	lim := frame.Limits{Control: 1 << 10, Front: 1 << 12, Middle: 1 << 12, Data: 1 << 14}
	if mode.msgr1 != nil {
		c.h.framer.(*framer1).dec = frame1.NewDecoder(*mode.msgr1, mode.signer(), lim)
	} else {
		c.h.rx.dec.SetLimits(lim)
	}
	c.arriveCut(stream, cuts)
	err := c.own.fault()
	nothingHeld(t, c, ts, mode.name)
	bad := errors.Is(err, frame.ErrFrame) || errors.Is(err, errUnexpectedFrame) || errors.Is(err, ErrCloseReceived)
	return verdict{c.own.list(), int(c.h.stats.unaskedAcks + c.h.stats.acksIn), bad, err != nil}
}

// FuzzFrameStream: a stream means the same wherever it is cut, and whatever it says
// nothing is lost.
// Matrix: FR-24, V1-08
func FuzzFrameStream(f *testing.F) {
	for i, mode := range fuzzModes {
		stream := newPeer(f, mode).stream(messagesOf([][3]int{{0, 0, 0}, {10, 3, 299}, {1, 0, 300}, {0, 0, 5000},
			{4000, 0, 0}}))
		f.Add(stream, []byte{1, 2, 30, 255, 7}, uint8(i))
		damaged := bytes.Clone(stream)
		damaged[len(damaged)/2] ^= 1
		f.Add(damaged, []byte{200, 200, 200}, uint8(i))
		f.Add(stream[:len(stream)-3], bytes.Repeat([]byte{0}, 50), uint8(i))
		f.Add(append(stream, byte(frame1.TagKeepalive), byte(frame1.TagClose), 1), bytes.Repeat([]byte{0}, 500), uint8(i))
	}
	f.Fuzz(func(t *testing.T, stream, cuts []byte, mode uint8) {
		if len(stream) > 1<<17 {
			return
		}
		m := fuzzModes[int(mode)%len(fuzzModes)]
		want := feedStream(t, stream, nil, loop.ReceiveReady, m)
		if !want.ended {
			t.Fatal("the end of the stream was not seen")
		}
		for _, receive := range receiveModes {
			if got := feedStream(t, stream, cuts, receive, m); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, cut: %d messages, bad=%v; in one piece: %d messages, bad=%v",
					receive, len(got.messages), got.bad, len(want.messages), want.bad)
			}
		}
	})
}
