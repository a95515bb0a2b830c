package dataplane

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// What came into posted memory can be sent on, and has the crcs that it came with.
func TestPostedDataIsSentOnFromWhereItLies(t *testing.T) {
	for _, mode := range allModes {
		for _, size := range []int{100, 100_000} {
			r := newRelay(t, mode, slices.Concat(wireModes[:2], msgr1Modes)...)
			g := r.in.post(7, size)
			r.in.own.onMessage = func(_ *Handler, m *Message) {
				for _, c := range r.out {
					must(t, c.h.Send(m.Clone()))
				}
			}
			r.in.flow(r.in.peer.message(1, 0, &Message{TID: 7, Front: payload(1, 30), Data: payload(3, size)}))
			for _, c := range r.out {
				f := c.take()
				if len(f) != 1 || !bytes.Equal(f[0].seg[3], payload(3, size)) || !bytes.Equal(f[0].seg[1], payload(1, 30)) {
					t.Errorf("%s, %d bytes: %d messages", mode.name, size, len(f))
				}
			}
			if g.used != 1 {
				t.Errorf("%s: used %d times", mode.name, g.used)
			}
		}
	}
}

// Whoever posts and withdraws, at any moment: the messages are the same.
// Matrix: V1-13
func TestPostingsAtRandomChangeNoMessage(t *testing.T) {
	overModes(t, func(t *testing.T, mode wireMode, receive loop.ReceiveMode) {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, 31))
			var sizes [][3]int
			for range 60 {
				sizes = append(sizes, [3]int{rng.IntN(2000), rng.IntN(100), rng.IntN(1 << rng.IntN(18))})
			}
			list := messagesOf(sizes)
			c, ts, kept := postBed(t, mode, receive, 0)
			c.h.throttles.Bytes.SetLimit(100 << 10)
			armed, free := map[uint64]*target{}, []*target{}
			all := c.peer.stream(list)
			for len(all) > 0 {
				n := min(1+rng.IntN(1<<rng.IntN(16)), len(all))
				c.sock.Arrive(all[:n])
				all = all[n:]
				c.settle()
				for rng.IntN(2) == 0 {
					i := rng.IntN(len(list))
					switch g := armed[list[i].TID]; {
					case g == nil:
						g = newTarget(list[i].TID, 1+rng.IntN(max(2*len(list[i].Data), 1)))
						must(t, c.h.AddPosting(&g.Posting))
						armed[g.TID] = g
					case c.h.RemovePosting(c.c, &g.Posting):
						g.fill()
						free = append(free, g)
						fallthrough
					default:
						delete(armed, g.TID)
						if !g.fenced() {
							t.Fatalf("seed %d: the fence of %d bytes was written", seed, len(g.Buffer))
						}
					}
				}
				for len(*kept) > 0 && (rng.IntN(2) == 0 || len(all) == 0) {
					m := (*kept)[0]
					want := list[m.Seq()-1]
					if !bytes.Equal(m.Front, want.Front) || !bytes.Equal(m.Middle, want.Middle) || !bytes.Equal(m.Data, want.Data) {
						t.Fatalf("seed %d: message %d changed while it was kept", seed, m.Seq())
					}
					m.Release()
					*kept = (*kept)[1:]
					c.settle()
				}
			}
			c.releaseEach(kept)
			checkReceived(t, c.own.list(), list)
			for _, g := range free {
				if !g.untouched() {
					t.Fatalf("seed %d: memory was touched after it was withdrawn", seed)
				}
			}
			nothingHeld(t, c, ts, fmt.Sprintf("seed %d", seed))
			c.close()
		}
	})
}

// A message into posted memory costs no allocation, nor does the posting.
func TestPostedMessagesDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		return // allocations are not judged there
	}
	for _, size := range []int{100, 100_000} {
		c := newBed(t, nil).conn(OpenOptions{Lossy: true})
		c.own.discard = true
		g := newTarget(7, size)
		wires := make([][]byte, 60)
		for i := range wires {
			wires[i] = c.peer.frame(frame.TagMessage, headerOf(uint64(i+1), 7), nil, nil, payload(1, size))
		}
		i := 0
		once := func() {
			must(t, c.h.AddPosting(&g.Posting))
			c.sock.Whole = wires[i]
			c.sock.Edge(0)
			i++
			c.settle()
		}
		for range 5 {
			once()
		}
		if n := testing.AllocsPerRun(50, once); n > 0 || g.used != i {
			t.Errorf("%d bytes: %v allocations; %d of %d were used", size, n, g.used, i)
		}
	}
}

func headerOf(seq, tid uint64) []byte {
	var p [frame.MessageHeaderSize]byte
	(&frame.MessageHeader{Seq: seq, TID: tid}).Put(&p)
	return p[:]
}
