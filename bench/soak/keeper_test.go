package soak

import (
	"bytes"
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
	keepers        = 4                      // half of them across the proxy
	workers        = 5                      // of each keeper
	slotsOfEach    = 3                      // of a worker, in each file
	burstEvery     = 500 * time.Millisecond // when all workers have requests
	burstSize      = 3                      // of each of them
	firstKeeper    = 500                    // its number as a client
	mostCandidates = 16
)

// keeper is a lossless session that keeps data on the server, and checks it.
type keeper struct {
	user
	reads, writes [places]atomic.Int64 // that succeeded
}

// slot is the known content of one slot: the last acknowledged data, then the data of later
// writes that failed, of which any byte may be there. None: there was no write.
type slot struct {
	place  place
	number uint32
	may    [][]byte
}

func openKeeper(n int, to wire.Addr, through netip.AddrPort) (*keeper, error) {
	k := &keeper{user: user{who: fmt.Sprintf("keeper.%d", n)}}
	stray := func(_ *control.Conn, m *control.Message) {
		k.fail(fmt.Errorf("result %d that nobody waits for", m.TID))
	}
	if err := k.open(firstKeeper+n, false, to, through, stray); err != nil {
		return nil, err
	}
	return k, nil
}

// run works until ctx ends, and then reads everything once more. Each worker has its own slots,
// and one request under way.
func (k *keeper) run(ctx context.Context, n int, began time.Time) {
	var wg sync.WaitGroup
	for i := range workers {
		var slots []*slot
		for j := range slotsOfEach * int(places) {
			number := (n*workers+i)*slotsOfEach + j/int(places)
			slots = append(slots, &slot{place: place(j) % places, number: uint32(number)})
		}
		wg.Go(func() { k.work(ctx, rand.New(rand.NewPCG(uint64(n), uint64(100+i))), slots, began) })
	}
	wg.Wait()
}

func (k *keeper) work(ctx context.Context, rng *rand.Rand, slots []*slot, began time.Time) {
	for n := uint64(0); ctx.Err() == nil && k.trouble() == nil; n++ {
		if n%burstSize == 0 { // all of them begin at once
			every := slower(burstEvery)
			rest(ctx, every-time.Since(began)%every)
		}
		s := slots[rng.IntN(len(slots))]
		if len(s.may) == 0 || rng.IntN(2) == 0 {
			size := 4096 << rng.IntN(9)
			if s.place == cached {
				size -= rng.IntN(4096)
			}
			k.write(s, pattern(size, uint64(s.number)<<32|n, 3), rng.IntN(4) == 0)
		} else {
			k.read(s)
		}
	}
	for _, s := range slots {
		for tries := 0; k.trouble() == nil && len(s.may) > 0 && !k.read(s); tries++ {
			if tries == 100 {
				k.fail(fmt.Errorf("%v slot %d cannot be read", s.place, s.number))
			}
			rest(context.Background(), 10*time.Millisecond) // a file is being opened anew
		}
	}
}

// write changes a slot. A write that fails may have been done in part.
func (k *keeper) write(s *slot, data []byte, through bool) {
	o := order{Write: true, Place: s.place, Through: through, Slot: s.number, Size: uint32(len(data))}
	if reply := k.ask(o, data); reply != nil {
		reply.Release()
		s.may = append(s.may[:0], data)
		k.writes[s.place].Add(1)
		return
	}
	if len(s.may) == 0 {
		s.may = append(s.may, nil) // no data, or zeros
	}
	if s.may = append(s.may, data); len(s.may) > mostCandidates {
		k.fail(fmt.Errorf("%v slot %d: %d writes in a row have failed", s.place, s.number, len(s.may)-1))
	}
}

// read verifies a slot: acknowledged data must be there. It returns false after a failure.
func (k *keeper) read(s *slot) bool {
	want := s.may[0]
	if len(want) == 0 {
		return true // no write of it was ever acknowledged
	}
	reply := k.ask(order{Place: s.place, Slot: s.number, Size: uint32(len(want))}, nil)
	if reply == nil {
		return false
	}
	defer reply.Release()
	if len(reply.Data) != len(want) {
		k.fail(fmt.Errorf("%v slot %d: %d of %d bytes", s.place, s.number, len(reply.Data), len(want)))
		return false
	}
	if at := s.strange(reply.Data); at >= 0 {
		k.fail(fmt.Errorf("%v slot %d, %d bytes: the one at %d was never written there (%d versions)",
			s.place, s.number, len(want), at, len(s.may)))
		return false
	}
	k.reads[s.place].Add(1)
	return true
}

// strange is the offset of the first byte that no version has there, or -1.
func (s *slot) strange(b []byte) int {
	if len(s.may) == 1 && bytes.Equal(b, s.may[0]) {
		return -1
	}
	for i, x := range b {
		if !slices.ContainsFunc(s.may, func(v []byte) bool { return i < len(v) && v[i] == x }) {
			return i
		}
	}
	return -1
}

// ask makes one request. Without a reply it has failed, as it may, or the keeper has.
func (k *keeper) ask(o order, data []byte) *control.Message {
	front, err := binary.Append(nil, binary.LittleEndian, o)
	if err != nil {
		k.fail(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := k.c.Call(ctx, control.NewMessage(orderType, front, data))
	if err != nil {
		k.fail(fmt.Errorf("order %+v: %w", o, err))
		return nil
	}
	if reply.Type == goodType {
		return reply
	}
	if reply.Type != failedType {
		k.fail(fmt.Errorf("order %+v: type %d: %q", o, reply.Type, reply.Front))
	}
	reply.Release()
	return nil
}
