package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Frames that are whole, with checksums that are right, and content that is not.

// pair is two connections of one core: one for what is wild, one that must not
// notice.
type pair struct {
	*bed
	wild, good *conn
	sent       uint64
}

func newPair(t testing.TB, m wireMode) *pair {
	t.Helper()
	b := newBed(t, nil)
	return &pair{bed: b, wild: b.conn(OpenOptions{}, m), good: b.conn(OpenOptions{}, m)}
}

// check has the good connection get a message, and looks for memory that was lost
// with the wild one.
func (p *pair) check(what string) {
	p.t.Helper()
	p.sent++
	p.good.sock.Arrive(p.good.peer.message(p.sent, 0, &Message{TID: p.sent, Front: payload(1, 10)}))
	p.settle()
	if list := p.good.own.list(); uint64(len(list)) != p.sent || p.good.own.fault() != nil {
		p.t.Fatalf("%s: the other connection has %d messages of %d, fault %v", what, len(list), p.sent, p.good.own.fault())
	}
	if p.wild.own.fault() != nil && p.c.Snapshot().PoolInUse != 0 {
		p.t.Fatalf("%s: %d bytes are lent", what, p.c.Snapshot().PoolInUse)
	}
}

// Every field of every frame of the data phase with every wild value.
// Matrix: HI-01
func TestAnyWildFieldOfADataFrameIsAFaultOrHarmless(t *testing.T) {
	for _, m := range wireModes {
		t.Run(m.name, func(t *testing.T) {
			var header [frame.MessageHeaderSize]byte
			(&frame.MessageHeader{Seq: 1, TID: 2, Type: 3, Priority: 4, Version: 5}).Put(&header)
			for tag, body := range map[frame.Tag][]byte{
				frame.TagMessage: header[:], frame.TagAck: make([]byte, 8),
				frame.TagKeepalive2: make([]byte, 8), frame.TagKeepalive2Ack: make([]byte, 8),
			} {
				b := newBed(t, nil)
				good := b.conn(OpenOptions{}, m)
				p := &pair{bed: b, good: good}
				p.wildFields(tag, m, body, func(changed []byte) []byte { return p.wild.peer.frame(tag, changed) })
				b.close()
			}
		})
	}
}

// wildFields has body arrive with every wild value in every field, each on a connection of its
// own. framed makes the bytes on the wire.
func (p *pair) wildFields(what any, m wireMode, body []byte, framed func(changed []byte) []byte) {
	p.t.Helper()
	for _, width := range []int{1, 2, 4, 8} {
		for at := 0; at+width <= len(body); at++ {
			for _, v := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1} {
				var wild [8]byte
				binary.LittleEndian.PutUint64(wild[:], v)
				changed := bytes.Clone(body)
				copy(changed[at:], wild[:width])
				p.wild = p.bed.conn(OpenOptions{}, m)
				p.wild.sock.Arrive(framed(changed))
				p.settle()
				p.wild.h.Close(nil)
				p.settle()
			}
		}
		p.check(fmt.Sprintf("%v, fields of %d bytes", what, width))
	}
}

// wildFrame is a frame with a right checksum and a random tag, sizes and bytes.
func (p *peerCodec) wildFrame(rng *rand.Rand) []byte {
	tag := frame.Tag(rng.IntN(24))
	segs := make([][]byte, rng.IntN(4)+1)
	if rng.IntN(2) == 0 {
		tag, segs = frame.TagMessage, make([][]byte, 4)
	}
	for i := range segs {
		if rng.IntN(3) > 0 {
			segs[i] = make([]byte, rng.IntN(1<<rng.IntN(18)))
			for k := range segs[i] {
				segs[i][k] = byte(rng.Uint32())
			}
		}
	}
	if tag == frame.TagMessage && rng.IntN(4) > 0 {
		segs[0] = make([]byte, frame.MessageHeaderSize)
		for k := range segs[0] {
			segs[0][k] = byte(rng.Uint64() & (rng.Uint64() >> 8)) // most bits are 0
		}
	}
	out, err := p.enc.AppendFrame(nil, tag, segs...)
	if err != nil {
		return nil // more than a frame can say
	}
	return out
}

// wildStream sends frames of a seed until the connection ends.
func wildStream(t testing.TB, m wireMode, seed uint64, frames int) {
	rng := rand.New(rand.NewPCG(seed, 24))
	p := newPair(t, m)
	defer p.close()
	for range frames {
		p.wild.sock.Arrive(p.wild.peer.wildFrame(rng))
		p.settle()
		if p.wild.own.fault() != nil {
			break
		}
	}
	p.wild.sock.HangUp()
	p.settle()
	p.check(fmt.Sprintf("seed %d", seed))
}

// Whole frames with right checksums that say anything.
// Matrix: HI-24
func TestWildFramesWithRightChecksumsHarmNobodyElse(t *testing.T) {
	for _, m := range wireModes {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(150) {
				wildStream(t, m, seed, 20)
			}
		})
	}
}

// Matrix: HI-24
func FuzzWildFrames(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(10))
	f.Add(uint64(2), uint8(3), uint8(200))
	f.Fuzz(func(t *testing.T, seed uint64, mode, frames uint8) {
		wildStream(t, wireModes[int(mode)%len(wireModes)], seed, int(frames))
	})
}

// An encrypted frame counts at its place of its connection only, and whole.
// Matrix: HI-22
func TestEncryptedFramesOutOfTheirPlaceAreFaults(t *testing.T) {
	overSecureModes(t, func(t *testing.T, m wireMode) {
		for name, mix := range map[string]struct {
			stream func(a, b, c, other []byte) []byte
			want   int
		}{
			"repeated":                    {func(a, _, _, _ []byte) []byte { return slices.Concat(a, a) }, 1},
			"swapped":                     {func(a, b, c, _ []byte) []byte { return slices.Concat(a, c, b) }, 1},
			"left out":                    {func(_, b, _, _ []byte) []byte { return b }, 0},
			"cut, and the next behind":    {func(a, b, _, _ []byte) []byte { return slices.Concat(a[:len(a)-16], b, b) }, 0},
			"two merged":                  {func(a, b, c, _ []byte) []byte { return slices.Concat(a, b[:len(b)/2], c[len(c)/2:]) }, 1},
			"one of another connection":   {func(a, _, _, o []byte) []byte { return slices.Concat(a, o) }, 1},
			"a frame that was not closed": {func(a, _, _, _ []byte) []byte { return append(bytes.Clone(a), make([]byte, 4096)...) }, 1},
		} {
			p := newPair(t, m)
			message := func(c *conn, n uint64) []byte {
				return c.peer.message(n, 0, &Message{TID: n, Front: payload(int(n), 500)})
			}
			other := p.bed.conn(OpenOptions{}, m)
			other.peer.keys[1].Key[0]++
			other.peer.enc = frame.NewEncoder(m.rev)
			must(t, other.peer.enc.Secure(other.peer.keys[1].Key, other.peer.keys[1].TxNonce))
			message(other, 1)
			p.wild.sock.Arrive(mix.stream(message(p.wild, 1), message(p.wild, 2), message(p.wild, 3), message(other, 2)))
			p.settle()
			if n := len(p.wild.own.list()); n != mix.want || !errors.Is(p.wild.own.fault(), frame.ErrFrame) {
				t.Errorf("%s: %d messages, fault %v", name, n, p.wild.own.fault())
			}
			p.check(name)
			p.close()
		}
	})
}

// Frames that cost next to nothing to send have their turn like any other.
// Matrix: HI-16, TH-06
func TestTinyFramesWithoutEndHaveTheirTurnOnly(t *testing.T) {
	for name, one := range map[string]func(c *conn, n uint64) []byte{
		"acks":             func(c *conn, _ uint64) []byte { return c.peer.frame(frame.TagAck, make([]byte, 8)) },
		"keepalives":       func(c *conn, _ uint64) []byte { return c.peer.frame(frame.TagKeepalive2, make([]byte, 8)) },
		"empty messages":   func(c *conn, n uint64) []byte { return c.peer.message(n, 0, &Message{}) },
		"repeated message": func(c *conn, _ uint64) []byte { return c.peer.message(1, 0, &Message{}) },
	} {
		t.Run(name, func(t *testing.T) {
			loud := besideAQuietOne(t, 20_000, one)
			if len(loud.sock.Whole) == 0 {
				t.Error("everything was read in four turns: nothing is shown")
			}
			loud.settle()
			if err := loud.own.fault(); err != nil {
				t.Error(err)
			}
		})
	}
}
