package dataplane

import (
	"bytes"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// What a link has taken and what it has queued is the handler's, in order.
// Matrix: HS-16, RP-01
func TestAHandlerTakesOverWhatItsLinkHasReadAndQueued(t *testing.T) {
	b := newBed(t, nil)
	l, f := b.link()
	peer := newPeerCodec(t, frame.Rev1, false)
	list := messagesOf([][3]int{{10, 0, 0}, {700, 5, 0}})
	f.Arrive(append([]byte("handshake"), peer.stream(list[:1])...))
	b.settle()
	must(t, b.During(func() error { return l.ReadFull(deadline(t), make([]byte, 9)) }))
	more := peer.message(2, 0, list[1])
	f.Arrive(more[:50]) // behind what the link has taken
	b.settle()
	f.Park = true
	must(t, b.During(func() error { // leaves a write in flight
		l.Queue([]byte("welcome"))
		return l.Await(deadline(t), func(unread []byte) bool { return len(unread) > 50 })
	}))
	l.Queue([]byte(", at last"))
	own := &recorder{}
	h := NewHandler(b.c, HandlerConfig{Owner: own})
	h.Open(l, OpenOptions{Lossy: true, Codec: Msgr2(peer.ourEncoder(), peer.ourDecoder())})
	must(t, h.Send(&Message{TID: 1, Front: []byte("text")}))
	f.Arrive(more[50:])
	b.settle()
	for range 3 {
		if f.InFlight != nil {
			f.Finish(0)
			b.settle()
		}
	}
	checkReceived(t, own.list(), list)
	hello := []byte("welcome, at last")
	if !bytes.HasPrefix(f.Sent, hello) {
		t.Fatalf("sent %q first", f.Sent[:min(len(f.Sent), 20)])
	}
	if got := peer.decode(f.Sent[len(hello):]); len(got) != 1 || string(got[0].seg[1]) != "text" {
		t.Errorf("behind it %d frames", len(got))
	}
	if own.fault() != nil {
		t.Error(own.fault())
	}
}
