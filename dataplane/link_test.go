package dataplane

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Matrix: HS-16
func TestBytesBehindTheHandshakeStayForTheHandler(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = 1
		p := newPlane(t, cfg)
		l, c := netPair(t, p.Core(0))
		peer := newPeerCodec(t, frame.Rev1, false)
		list := messagesOf([][3]int{{10, 0, 0}, {0, 0, 300 << 10}, {700, 5, 0}})
		go func() { _, _ = c.Write(append([]byte("handshake"), peer.stream(list)...)) }()
		hello := make([]byte, 9)
		must(t, l.ReadFull(deadline(t), hello))
		own := &recorder{}
		h := NewHandler(p.Core(0), HandlerConfig{Owner: own})
		h.Open(l, OpenOptions{Lossy: true, Encoder: peer.ourEncoder(), Decoder: peer.ourDecoder()})
		until(t, own, "the messages", func() bool { return len(own.list()) == len(list) })
		checkReceived(t, own.list(), list)
		l.Close() // given away: nothing happens
		if err := l.Write(deadline(t), []byte{1}); !errors.Is(err, ErrLinkClosed) {
			t.Errorf("write on a link that was given away: %v", err)
		}
		if own.fault() != nil {
			t.Errorf("fault %v", own.fault())
		}
	})
}
