package dataplane

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// relay is a connection that receives, and others to which what it receives is
// sent on.
type relay struct {
	*bed
	in  *conn
	out []*conn
	seq uint64
}

func newRelay(t *testing.T, from wireMode, to ...wireMode) *relay {
	b := newBed(t, nil)
	r := &relay{bed: b, in: b.conn(OpenOptions{Lossy: true}, from)}
	r.in.own.discard = true
	for _, m := range to {
		r.out = append(r.out, b.conn(OpenOptions{Lossy: true}, m))
	}
	return r
}

// pass receives a message with such a payload; on has it sent on.
func (r *relay) pass(sizes [3]int, on func(m *Message)) {
	r.t.Helper()
	r.seq++
	r.in.own.onMessage = func(_ *Handler, m *Message) { on(m) }
	r.in.sock.Arrive(r.in.peer.message(r.seq, 0, &Message{TID: 7,
		Front: payload(1, sizes[0]), Middle: payload(2, sizes[1]), Data: payload(3, sizes[2])}))
	r.settle()
}

// want is that each of out was sent these segments, in an undamaged frame.
func (r *relay) want(segs ...[]byte) {
	r.t.Helper()
	for i, c := range r.out {
		frames := c.take() // fails for a damaged one
		if len(frames) != 1 {
			r.t.Fatalf("%d frames for peer %d", len(frames), i)
		}
		for s, want := range segs {
			if !bytes.Equal(frames[0].seg[s+1], want) {
				r.t.Errorf("peer %d: segment %d differs", i, s+1)
			}
		}
	}
}

// crcShapes are payloads that are copied, gathered, and received apart.
var crcShapes = [][3]int{{64, 0, 0}, {10, 20, 1000}, {0, 0, 5000}, {3000, 100, 4000}, {100, 0, 100 << 10}, {70000, 3000, 300 << 10},
	{4096, 100, 64 << 10}}

// crcModes are framings whose crcs can be passed on.
var crcModes = slices.Concat(wireModes[:2], msgr1Modes[:2])

// overCRCShapes has each shape sent on between both revisions and protocols.
func overCRCShapes(t *testing.T, f func(t *testing.T, r *relay, shape [3]int)) {
	for _, from := range crcModes {
		for _, to := range crcModes {
			for _, shape := range crcShapes {
				t.Run(fmt.Sprintf("%s to %s %v", from.name, to.name, shape), func(t *testing.T) { f(t, newRelay(t, from, to), shape) })
			}
		}
	}
}

// A byte that changes without a word is what shows whether a crc is computed
// again: it is not, so the frame is damaged. Builds that check invariants say
// who has done it.
func TestACRCThatCameWithASegmentIsNotComputedAgain(t *testing.T) {
	overCRCShapes(t, func(t *testing.T, r *relay, shape [3]int) {
		for i := range shape {
			if shape[i] == 0 {
				continue
			}
			damage := func(clone bool) {
				r.pass(shape, func(m *Message) {
					m.Retain()
					segs := m.segments()
					segs[i][shape[i]-1] ^= 1
					if clone {
						c := m.Clone()
						m.Release()
						m = c
					}
					must(t, r.out[0].h.Send(m))
				})
			}
			for _, clone := range []bool{false, true} {
				if invariants.Enabled {
					if !panics(func() { damage(clone) }) {
						t.Fatal("nobody notices that the payload was changed")
					}
					return // the core is of no use any more
				}
				damage(clone)
				err := decodeOne(r.out[0])
				converted := (r.in.mode.msgr1 == nil) != (r.out[0].mode.msgr1 == nil)
				if converted && shape[i] < reseedFrom*bits.OnesCount(uint(shape[i])) {
					if err != nil { // it was cheaper to compute it
						t.Errorf("segment %d, clone %v: %v", i+1, clone, err)
					}
				} else if !errors.Is(err, frame.ErrSegmentCRC) {
					t.Errorf("segment %d, clone %v: %v, want a crc that was not computed again", i+1, clone, err)
				}
			}
		}
	})
}

// decodeOne takes one frame of crc mode, damaged or not.
func decodeOne(c *conn) error {
	wire := c.sock.Sent
	c.sock.Sent = nil
	if c.mode.msgr1 != nil {
		hd, err := c.peer.dec1.Header(wire[1 : 1+frame1.NewHeaderSize])
		if err != nil {
			return err
		}
		segs := wire[1+frame1.NewHeaderSize:]
		front, middle := hd.FrontLen, hd.FrontLen+hd.MiddleLen
		data := middle + hd.DataLen
		return c.peer.dec1.Footer(hd, segs[data:], frame1.SumsOf(segs[:front], segs[front:middle], segs[middle:data]))
	}
	hd, err := c.peer.dec.Open(wire[:frame.PreambleSize])
	if err != nil {
		return err
	}
	_, err = c.peer.dec.Finish(hd, wire[:frame.PreambleSize], wire[frame.PreambleSize:])
	return err
}

func TestAChangedPayloadIsSentWithItsOwnCRC(t *testing.T) {
	overCRCShapes(t, func(t *testing.T, r *relay, shape [3]int) {
		for name, change := range map[string]func(m *Message){
			"in place": func(m *Message) {
				for _, seg := range m.segments() {
					for at := range seg {
						seg[at] ^= byte(at)
					}
				}
				m.Changed()
			},
			"the beginning": func(m *Message) { m.Front, m.Data = m.Front[:len(m.Front)/2], m.Data[:len(m.Data)/2] },
			"the end":       func(m *Message) { m.Front, m.Data = m.Front[len(m.Front)/2:], m.Data[len(m.Data)/2:] },
			"exchanged":     func(m *Message) { m.Front, m.Middle, m.Data = m.Data, m.Front, m.Middle },
			"another":       func(m *Message) { m.Data = bytes.Repeat([]byte{7}, len(m.Data)) },
			"longer":        func(m *Message) { m.Data = append(m.Data, 1, 2, 3) },
			"none":          func(m *Message) { m.Front, m.Middle, m.Data = nil, nil, nil },
		} {
			t.Run(name, func(t *testing.T) {
				for _, before := range []bool{true, false} { // the first Retain moves a small payload
					var want [3][]byte
					r.pass(shape, func(m *Message) {
						if before {
							change(m)
						}
						m.Retain()
						if !before {
							change(m)
						}
						for i, seg := range m.segments() {
							want[i] = bytes.Clone(seg)
						}
						must(t, r.out[0].h.Send(m))
					})
					r.want(want[0], want[1], want[2])
				}
			})
		}
	})
}

// Wherever the payload lies: in posted memory, too.
func TestAMessageIsReplicatedInEveryMode(t *testing.T) {
	for _, from := range allModes {
		for _, shape := range crcShapes {
			for _, posted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v posted=%v", from.name, shape, posted), func(t *testing.T) {
					r := newRelay(t, from, allModes...)
					if posted {
						r.in.post(7, 1<<20)
					}
					r.pass(shape, func(m *Message) {
						if m.Posted() != (posted && shape[2] > 0) {
							t.Errorf("posted: %v", m.Posted())
						}
						for _, c := range r.out[1:] {
							must(t, c.h.Send(m.Clone()))
						}
						m.Retain()
						must(t, r.out[0].h.Send(m))
					})
					r.want(payload(1, shape[0]), payload(2, shape[1]), payload(3, shape[2]))
				})
			}
		}
	}
}

func TestDataCRCIsThatOfHashCRC32InEveryMode(t *testing.T) {
	sum := func(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }
	for _, from := range allModes {
		for _, shape := range crcShapes {
			t.Run(fmt.Sprintf("%s %v", from.name, shape), func(t *testing.T) {
				newRelay(t, from).pass(shape, func(m *Message) {
					m.Retain()
					defer m.Release()
					whole := m.Data
					for _, part := range [][]byte{whole, whole[len(whole)/2:], whole[:len(whole)/2], {1, 2, 3}, nil, whole} {
						m.Data = part
						if got, want := m.DataCRC(), sum(part); got != want {
							t.Errorf("%d of %d bytes: %08x, want %08x", len(part), len(whole), got, want)
						}
					}
					if len(whole) > 0 {
						whole[0]++
						if !invariants.Enabled && (from.name == crcModes[0].name || from.name == crcModes[1].name) && m.DataCRC() == sum(whole) {
							t.Error("Data is read again") // it has changed without a word
						}
						m.Changed()
						if got, want := m.DataCRC(), sum(whole); got != want {
							t.Errorf("changed: %08x, want %08x", got, want)
						}
					}
				})
			})
		}
	}
}

// As above a wrong crc is what shows that none is computed.
func TestACRCThatTheUserHasSetIsNotComputedAgain(t *testing.T) {
	const size = 64 << 10
	for _, to := range crcModes {
		t.Run(to.name, func(t *testing.T) {
			r := newRelay(t, crcModes[0], to)
			own := NewMessage(1, payload(1, 64), payload(3, size))
			crc := own.DataCRC()
			own.SetDataCRC(crc)
			must(t, r.out[0].h.Send(own))
			r.settle()
			r.want(payload(1, 64), nil, payload(3, size))
			wrong := func() {
				m := NewMessage(1, payload(1, 64), payload(3, size))
				m.SetDataCRC(crc + 1)
				must(t, r.out[0].h.Send(m))
				r.settle()
			}
			if invariants.Enabled {
				if !panics(wrong) {
					t.Fatal("nobody notices that the crc is wrong")
				}
				return
			}
			wrong()
			if err := decodeOne(r.out[0]); !errors.Is(err, frame.ErrSegmentCRC) {
				t.Errorf("%v, want a crc that was not computed", err)
			}
			part := NewMessage(1, payload(1, 64), payload(3, size))
			part.SetDataCRC(crc)
			part.Data = part.Data[1:]
			must(t, r.out[0].h.Send(part))
			r.settle()
			r.want(payload(1, 64), nil, payload(3, size)[1:])
		})
	}
}

func overSecureModes(t *testing.T, f func(t *testing.T, m wireMode)) {
	for _, m := range wireModes {
		if m.secure {
			t.Run(m.name, func(t *testing.T) { f(t, m) })
		}
	}
}

// abort gives a frame the mark of a sender that gave up. It has more than one segment, or is of revision
// 0. Of an encrypted one the last operation, number op of the connection, is sealed again.
func (p *peerCodec) abort(wire []byte, op uint64) []byte {
	if !p.mode.secure {
		wire[len(wire)-map[frame.Revision]int{frame.Rev0: 17, frame.Rev1: 13}[p.mode.rev]] = 1
		return wire
	}
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
				op := uint64(1)
				if m.rev != frame.Rev0 {
					op = 2 // behind its head
				}
				c.sock.Arrive(c.peer.abort(c.peer.message(2, 0, given), op))
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
