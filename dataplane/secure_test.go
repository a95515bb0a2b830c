package dataplane

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

func overSecureModes(t *testing.T, f func(t *testing.T, m wireMode)) {
	for _, m := range wireModes {
		if m.secure {
			t.Run(m.name, func(t *testing.T) { f(t, m) })
		}
	}
}

// abort seals the last operation of an encrypted frame again, which is number
// op of the connection, with the mark of a sender that gave up.
func (p *peerCodec) abort(wire []byte, op uint64) []byte {
	body, nonce := wire, p.keys[1].TxNonce
	if p.mode.rev == frame.Rev0 {
		binary.LittleEndian.PutUint32(nonce[:], binary.LittleEndian.Uint32(nonce[:])+uint32(op))
	} else {
		body = wire[headMax:]
		binary.LittleEndian.PutUint64(nonce[4:], binary.LittleEndian.Uint64(nonce[4:])+op)
	}
	block, err := aes.NewCipher(p.keys[1].Key[:])
	must(p.t, err)
	g, err := cipher.NewGCM(block)
	must(p.t, err)
	plain, err := g.Open(nil, nonce[:], body, nil)
	must(p.t, err)
	plain[len(plain)-16] = 1 // late status: aborted
	g.Seal(body[:0], nonce[:], plain, nil)
	return wire
}

// Matrix: FR-17
func TestAbortedFramesNeverHappened(t *testing.T) {
	for _, m := range wireModes {
		for _, size := range []int{200, 100 << 10} {
			t.Run(fmt.Sprint(m.name, size), func(t *testing.T) {
				ts := &loop.Throttles{Frames: loop.NewThrottle(10), Bytes: loop.NewThrottle(1 << 20)}
				c := newBed(t, nil).conn(OpenOptions{Throttles: ts}, m)
				first, second := &Message{TID: 1}, &Message{TID: 2, Front: payload(1, 50)}
				given := &Message{TID: 5, Front: payload(2, 10), Data: payload(3, size)}
				c.sock.Arrive(c.peer.message(1, 0, first)) // operation 0 of those that are encrypted
				switch {
				case !m.secure:
					c.sock.Arrive(c.peer.aborted(2, given))
				case m.rev == frame.Rev0:
					c.sock.Arrive(c.peer.abort(c.peer.message(2, 0, given), 1))
				default: // behind its head
					c.sock.Arrive(c.peer.abort(c.peer.message(2, 0, given), 2))
				}
				c.arrive(c.peer.message(2, 0, second))
				must(t, c.own.fault())
				checkReceived(t, c.own.list(), []*Message{first, second})
				if st := c.h.statistics(c.c); st.InSeq != 2 || st.Gaps != 0 || st.Duplicates != 0 || countsOf(c.c).Aborted != 1 {
					t.Errorf("%+v", st)
				}
				if ts.Frames.Used() != 0 || ts.Bytes.Used() != 0 || c.c.Snapshot().PoolInUse != 0 {
					t.Errorf("%d messages and %d bytes are taken, %d lent", ts.Frames.Used(), ts.Bytes.Used(), c.c.Snapshot().PoolInUse)
				}
			})
		}
	}
}

// A sender that may not encrypt, because its keys are gone or its nonces used up,
// ends the connection, and nothing goes out in clear.
func TestAnEncoderThatRefusesIsAFault(t *testing.T) {
	overSecureModes(t, func(t *testing.T, m wireMode) {
		for _, size := range []int{10, 100 << 10} {
			c := newBed(t, nil).conn(OpenOptions{}, m)
			c.h.rx.enc.Wipe()
			c.send(&Message{Data: payload(1, size)})
			if err := c.own.fault(); !errors.Is(err, frame.ErrKeys) {
				t.Errorf("fault %v", err)
			}
			if len(c.sock.Sent) != 0 || c.c.Snapshot().PoolInUse != 0 {
				t.Errorf("%d bytes were sent, %d are lent", len(c.sock.Sent), c.c.Snapshot().PoolInUse)
			}
		}
	})
}

// What is sent encrypted stays in clear where it is: it may have to be sent
// again, under other keys.
func TestEncryptionLeavesThePayloadAlone(t *testing.T) {
	overSecureModes(t, func(t *testing.T, m wireMode) {
		c := newBed(t, nil).conn(OpenOptions{}, m)
		msg := &Message{TID: 3, Front: payload(1, 100), Data: payload(2, 100<<10)}
		c.send(msg)
		first := c.take()
		c.sock.Arrive([]byte("no frame of ours: the connection is lost, and so are its keys. " +
			"This is longer than any head that a receiver waits for."))
		c.settle()
		c.h.RequeueSentUpTo(0)
		c.open(OpenOptions{})
		second := c.take()
		for _, frames := range [][]parsed{first, second} {
			if len(frames) != 1 || !bytes.Equal(frames[0].seg[3], payload(2, 100<<10)) || !bytes.Equal(frames[0].seg[1], payload(1, 100)) {
				t.Fatalf("%d frames, or other payload", len(frames))
			}
		}
	})
}
