package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
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
	{name: "msgr1", proxy: true, msgr1: true, depth: 16, sizes: [2]int{64, 128 << 10},
		every: 20 * time.Millisecond, number: 2},
	{name: "peer", proxy: true, peer: true, depth: 16, sizes: [2]int{64, 16 << 10},
		every: 20 * time.Millisecond, number: 2},
	{name: "slow", depth: 64, sizes: [2]int{32 << 10, 64 << 10}, every: 10 * time.Millisecond,
		hold: 400 * time.Millisecond, number: 2},
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
func openSession(t *testing.T, k kind, id int, to wire.Addr, proxy netip.AddrPort) *session {
	t.Helper()
	s := &session{
		kind: k, user: user{who: fmt.Sprintf("%s.%d", k.name, id)}, sent: map[uint64]int{}, next: [2]uint64{2, 1},
		rng: rand.New(rand.NewPCG(uint64(id), 11)), changed: make(chan struct{}, 1),
	}
	s.open(t, id, k.peer, to, proxy, s.received)
	return s
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

var errWrong = errors.New("soak: a lossless session is not what it promises")

// timeouts are those of both ends: short, so that they are reached.
var timeouts = control.Timeouts{
	Handshake: 5 * time.Second, KeepaliveEvery: 500 * time.Millisecond, Keepalive: 3 * time.Second,
	MaxBackoff: 2 * time.Second,
}

// user is one end of a lossless session with a server. It must never be reset.
type user struct {
	who string
	m   *control.Messenger
	c   *control.Conn

	mu    sync.Mutex
	wrong error // guarded by mu: the first error
}

// detour is a driver whose connections go through a proxy.
type detour struct {
	uring.Driver
	via netip.AddrPort
}

func (d detour) Connect(local, _ netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via, opt, user)
}

// open connects to a server as number n, over a proxy if there is one. A peer listens, too.
func (u *user) open(
	t *testing.T, n int, peer bool, to wire.Addr, through netip.AddrPort, queued func(*control.Conn, *control.Message),
) {
	t.Helper()
	policy, who := control.LosslessClient(), wire.EntityName{Type: wire.Client, ID: fmt.Sprint(n)}
	if peer {
		policy, who.Type = control.LosslessPeer(), wire.OSD
	}
	cfg := control.Config{
		Name: who, Number: int64(n), Default: &policy, Plane: loop.Config{Cores: 1}, Timeouts: timeouts,
	}
	if through.IsValid() {
		cfg.Plane.Open = func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{})
			return detour{d, through}, err
		}
	}
	var err error
	u.m, err = control.New(cfg)
	clitest.Must(t, err)
	clitest.Must(t, u.m.Start(&control.Dispatcher{
		Queued:      queued,
		Reset:       func(*control.Conn, bool) { u.fail(errors.New("reset")) },
		RemoteReset: func(*control.Conn) { u.fail(errors.New("reset by the server")) },
	}))
	if peer {
		_, err = u.m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
		clitest.Must(t, err)
	}
	u.c, err = u.m.Connect(to, wire.OSD)
	clitest.Must(t, err)
}

func (u *user) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return u.m.Shutdown(ctx)
}

// fail keeps the first error. It takes mu.
func (u *user) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wrong == nil {
		u.wrong = fmt.Errorf("%w: %s: %w", errWrong, u.who, err)
	}
}

// trouble is the first error.
func (u *user) trouble() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wrong
}

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

func openKeeper(t *testing.T, n int, to wire.Addr, through netip.AddrPort) *keeper {
	t.Helper()
	k := &keeper{user: user{who: fmt.Sprintf("keeper.%d", n)}}
	stray := func(_ *control.Conn, m *control.Message) {
		k.fail(fmt.Errorf("result %d that nobody waits for", m.TID))
	}
	k.open(t, firstKeeper+n, false, to, through, stray)
	return k
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
		for begun := time.Now(); k.trouble() == nil && len(s.may) > 0 && !k.read(s); {
			if time.Since(begun) > patience {
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
