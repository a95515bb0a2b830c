package soak

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	keepers        = 4                      // half of them across a proxy
	workers        = 5                      // of each keeper
	slotsOfEach    = 3                      // of a worker, in each block file
	burstEvery     = 500 * time.Millisecond // when all workers have requests
	burstSize      = 3                      // of each of them
	firstKeeper    = 500                    // its number as a client
	mostCandidates = 16
)

// keeper is a lossless session that keeps data on the server, and knows what must
// be there.
type keeper struct {
	user
	reads, writes [places]atomic.Int64 // that succeeded
	doubts        atomic.Int64         // reads of what a failed write has left
}

// slot is what a worker knows of one slot: what was acknowledged last, and behind it what
// was tried since, of which any byte may be there or not. None: nothing was ever written.
type slot struct {
	place  place
	number uint32
	may    []content
}

// content is one version of a slot.
type content struct {
	tid  uint64 // of its pattern
	data []byte
}

func openKeeper(n int, to wire.Addr, through netip.AddrPort) (*keeper, error) {
	k := &keeper{user: user{who: fmt.Sprintf("keeper.%d", n)}}
	stray := func(_ *control.Conn, m *control.Message) {
		k.fail(fmt.Errorf("result %d that nobody waits for", m.TID))
	}
	if err := k.open(firstKeeper+n, false, to, through, stray, k.fail); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *keeper) trouble() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wrong
}

// run works until ctx ends, and then reads everything once more.
func (k *keeper) run(ctx context.Context, n int, began time.Time) {
	var wg sync.WaitGroup
	for i := range workers {
		w := &worker{k: k, rng: rand.New(rand.NewPCG(uint64(n), uint64(100+i)))}
		first := uint32((n*workers + i) * slotsOfEach)
		for j := range uint32(slotsOfEach) {
			w.slots = append(w.slots, &slot{place: cached, number: first + j}, &slot{place: direct, number: first + j})
		}
		wg.Go(func() { w.run(ctx, began) })
	}
	wg.Wait()
}

// worker has slots that nobody else touches, and one request under way.
type worker struct {
	k     *keeper
	rng   *rand.Rand
	slots []*slot
	last  uint64 // number of the last content
}

func (w *worker) run(ctx context.Context, began time.Time) {
	for n := 0; ctx.Err() == nil && w.k.trouble() == nil; n++ {
		if n%burstSize == 0 { // all of them begin at once
			every := slower(burstEvery)
			rest(ctx, every-time.Since(began)%every)
		}
		s := w.slots[w.rng.IntN(len(w.slots))]
		if len(s.may) == 0 || w.rng.IntN(2) == 0 {
			w.write(s)
		} else {
			w.read(s, w.rng.IntN(4) == 0)
		}
	}
	for _, s := range w.slots {
		for tries := 0; w.k.trouble() == nil && len(s.may) > 0 && !w.read(s, true); tries++ {
			if tries == 100 {
				w.k.fail(fmt.Errorf("%v slot %d cannot be read", s.place, s.number))
			}
			rest(context.Background(), 10*time.Millisecond) // a file is being opened anew
		}
	}
}

// size is mostly a few blocks, and up to a whole slot.
func (w *worker) size(p place) int {
	size := 4096 << w.rng.IntN(4)
	if w.rng.IntN(8) == 0 {
		size = slotBytes >> w.rng.IntN(5)
	}
	if p != direct {
		size -= w.rng.IntN(2) * w.rng.IntN(4096)
	}
	return size
}

// write changes a slot. A write that fails may have been done in part.
func (w *worker) write(s *slot) {
	w.last++
	tid := uint64(s.number)<<32 | w.last
	next := content{tid, pattern(w.size(s.place), tid, 3)}
	o := order{Action: writeSlot, Place: s.place, How: control.Committed, Slot: s.number, Size: uint32(len(next.data))}
	if w.rng.IntN(4) == 0 {
		o.How = control.Through
	}
	res, reply := w.ask(o, next.data)
	if reply != nil {
		reply.Release()
	}
	if res == good {
		s.may = append(s.may[:0], next)
		w.k.writes[s.place].Add(1)
	} else {
		if len(s.may) == 0 {
			s.may = append(s.may, content{}) // nothing, or zeros
		}
		s.may = append(s.may, next)
	}
	if len(s.may) > mostCandidates {
		w.k.fail(fmt.Errorf("%v slot %d: %d writes in a row have failed", s.place, s.number, len(s.may)-1))
	}
}

// read verifies all of a slot, or a piece of it, and says whether that went well. What was
// acknowledged must be there.
func (w *worker) read(s *slot, all bool) bool {
	most := len(s.may[0].data)
	if most == 0 {
		return true // no write of it was ever acknowledged
	}
	off, n := 0, most
	if len(s.may) > 1 {
		w.k.doubts.Add(1)
	}
	if !all {
		off = w.rng.IntN(most)
		n = 1 + w.rng.IntN(most-off)
	}
	res, reply := w.ask(order{Action: readSlot, Place: s.place, Slot: s.number, Off: uint32(off), Size: uint32(n)}, nil)
	if reply == nil {
		return false
	}
	defer reply.Release()
	if res != good {
		return false
	}
	if len(reply.Data) != n {
		w.k.fail(fmt.Errorf("%v slot %d: %d of %d bytes at %d", s.place, s.number, len(reply.Data), n, off))
		return false
	}
	if at := s.strange(reply.Data, off); at >= 0 {
		w.k.fail(fmt.Errorf("%v slot %d, %d bytes from %d on: the one at %d was never written there (%d versions)", s.place, s.number, n, off, at, len(s.may)))
		return false
	}
	w.k.reads[s.place].Add(1)
	return true
}

// strange is the offset of the first byte that no version has there, or -1.
func (s *slot) strange(b []byte, off int) int {
	if want := s.may[0].data[off:][:len(b)]; len(s.may) == 1 && string(b) == string(want) {
		return -1
	}
	for i, x := range b {
		if !slices.ContainsFunc(s.may, func(v content) bool { return off+i < len(v.data) && v.data[off+i] == x }) {
			return off + i
		}
	}
	return -1
}

// ask makes one request. Without a reply the keeper has failed.
func (w *worker) ask(o order, data []byte) (result, *control.Message) {
	front, err := binary.Append(nil, binary.LittleEndian, o)
	if err != nil {
		w.k.fail(err)
		return unasked, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := w.k.c.Call(ctx, control.NewMessage(orderType, front, data))
	if err != nil {
		w.k.fail(fmt.Errorf("order %+v: %w", o, err))
		return unasked, nil
	}
	if reply.Type != resultType || len(reply.Front) == 0 || result(reply.Front[0]) >= unasked {
		w.k.fail(fmt.Errorf("order %+v: type %d: %q", o, reply.Type, reply.Front))
		reply.Release()
		return unasked, nil
	}
	return result(reply.Front[0]), reply
}
