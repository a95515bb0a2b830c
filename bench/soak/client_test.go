package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// kind is how a session behaves.
type kind struct {
	name   string
	proxy  bool          // across the hostile proxy, else directly
	msgr1  bool          // the older protocol
	peer   bool          // lossless-peer: the server may dial as well
	depth  int           // messages under way at most
	sizes  [2]int        // bytes of payload: from, to
	every  time.Duration // between messages, on average
	hold   time.Duration // that a consumer keeps an echo, at most; 0: not at all
	number int           // sessions of this kind
}

var kinds = []kind{
	{name: "cut", proxy: true, depth: 16, sizes: [2]int{64, 128 << 10}, every: 20 * time.Millisecond, number: 6},
	{
		name: "msgr1", proxy: true, msgr1: true, depth: 16, sizes: [2]int{64, 128 << 10}, every: 20 * time.Millisecond,
		number: 2,
	},
	{
		name: "peer", proxy: true, peer: true, depth: 16, sizes: [2]int{64, 16 << 10}, every: 20 * time.Millisecond,
		number: 2,
	},
	{
		name: "slow", depth: 64, sizes: [2]int{32 << 10, 64 << 10}, every: 10 * time.Millisecond,
		hold: 400 * time.Millisecond, number: 2,
	},
	{name: "quick", depth: 4, sizes: [2]int{64, 4096}, every: 5 * time.Millisecond, number: 2},
}

// session is a lossless session that verifies every message. Echoes come back in
// two orders, that of the even transactions and that of the odd ones.
type session struct {
	kind
	user
	rng *rand.Rand // the sender's

	// Guarded by the user's mu, too.
	sent    map[uint64]int // guarded by mu: the sizes of those that did not come back
	next    [2]uint64      // guarded by mu: the next even and odd one
	echoes  uint64         // guarded by mu
	changed chan struct{}  // has an element after an echo
}

// openSession connects to a server, over a proxy if there is one.
func openSession(k kind, id int, to wire.Addr, proxy netip.AddrPort) (*session, error) {
	s := &session{
		kind: k, user: user{who: fmt.Sprintf("%s.%d", k.name, id)}, sent: map[uint64]int{}, next: [2]uint64{2, 1},
		rng: rand.New(rand.NewPCG(uint64(id), 11)), changed: make(chan struct{}, 1),
	}
	if err := s.open(id, k.peer, to, proxy, s.received); err != nil {
		return nil, err
	}
	return s, nil
}

// run sends until ctx ends, and then waits for the echoes under way.
func (s *session) run(ctx context.Context) {
	for tid := uint64(1); ctx.Err() == nil && s.trouble() == nil; tid++ {
		rest(ctx, time.Duration(s.rng.Int64N(int64(slower(2*s.every))))) // on average as long as the kind says
		if !s.room(ctx) {
			break
		}
		size := s.sizes[0] + s.rng.IntN(s.sizes[1]-s.sizes[0]+1)
		msg := control.NewMessage(1000, pattern(8, tid, 1), pattern(size, tid, 2))
		msg.TID = tid
		s.mu.Lock()
		s.sent[tid] = size
		s.mu.Unlock()
		sending, cancel := context.WithTimeout(context.Background(), patience)
		if err := s.c.SendContext(sending, msg); err != nil {
			s.fail(fmt.Errorf("send %d: %w", tid, err))
		}
		cancel()
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for s.trouble() == nil && s.underWay() > 0 {
		select {
		case <-s.changed:
		case <-limit.C:
			s.fail(fmt.Errorf("%d messages under way for %v: %v, %w", s.underWay(), patience, s.c.State(), s.c.Err()))
		}
	}
}

// room waits until fewer than depth messages are under way.
func (s *session) room(ctx context.Context) bool {
	for s.trouble() == nil && s.underWay() >= s.depth {
		select {
		case <-s.changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (s *session) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// received verifies an echo.
func (s *session) received(_ *control.Conn, m *control.Message) {
	if err := s.verify(m); err != nil {
		s.fail(err)
	}
	if s.hold > 0 && m.TID%8 == 0 {
		m.Retain()
		time.AfterFunc(s.hold, m.Release)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *session) verify(m *control.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.sent[m.TID]
	if want := s.next[m.TID%2]; m.TID != want || !ok {
		return fmt.Errorf("echo %d came, want %d", m.TID, want)
	}
	if !same(m.Front, 8, m.TID, 1) || !same(m.Data, size, m.TID, 2) {
		return fmt.Errorf("echo %d is not what was sent", m.TID)
	}
	s.next[m.TID%2] += 2
	delete(s.sent, m.TID)
	s.echoes++
	return nil
}

func (s *session) results() (echoes uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.echoes, s.wrong
}

// pattern is a payload that no other transaction has.
func pattern(size int, tid, salt uint64) []byte {
	b := make([]byte, 0, size+8)
	for x := tid*2654435761 + salt; len(b) < size; x = x*6364136223846793005 + 1442695040888963407 {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:size]
}

func same(b []byte, size int, tid, salt uint64) bool { return bytes.Equal(b, pattern(size, tid, salt)) }
