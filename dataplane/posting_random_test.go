package dataplane

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

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
