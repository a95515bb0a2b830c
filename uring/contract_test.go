package uring_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// The contract tests run the behaviour that driver.go promises over every
// driver of the build, through the exported calls only.

var seedFlag = flag.Uint64("seed", 0, "repeat a random test with the `seed` that it printed")

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// backends are the drivers of this build.
var backends = slices.Compact([]uring.Backend{uring.Flavour, uring.Epoll})

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// overDrivers runs f as a subtest over each driver of the build. A driver that
// the kernel refuses is skipped with the kernel's reason.
func overDrivers(t *testing.T, cfg uring.Config, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			cfg.Backend = backend
			f(t, lockedRig(t, cfg))
		})
	}
}

// rig is a driver under test. It collects completions by user word, and checks
// for every operation that exactly one final completion arrives, last.
type rig struct {
	t         testing.TB
	d         uring.Driver
	collected map[uint64][]uring.Completion
	ops       map[uring.Op]*tracked
	unended   int // operations without their final completion
	lastUser  uint64
	slice     time.Duration // longest single Wait
	closed    bool
	listener  uring.Socket
	acceptor  uint64
	cleanups  []func()
}

type tracked struct {
	user  uint64
	kind  uring.Kind
	ended bool
}

func newRig(t testing.TB, cfg uring.Config) *rig {
	t.Helper()
	d, err := uring.Open(cfg)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EACCES) {
		t.Skipf("%s: the kernel refuses: %v", cfg.Backend, err)
	}
	if err != nil {
		t.Fatalf("open %s: %v", cfg.Backend, err)
	}
	if got := d.Info().Backend; got != cfg.Backend {
		t.Fatalf("opened %s, want %s", got, cfg.Backend)
	}
	return &rig{
		t: t, d: d, slice: patience,
		collected: map[uint64][]uring.Completion{},
		ops:       map[uring.Op]*tracked{},
	}
}

// lockedRig is a rig of this thread, which ends with the test.
func lockedRig(t *testing.T, cfg uring.Config) *rig {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r := newRig(t, cfg)
	t.Cleanup(r.finish)
	return r
}

// finish closes the driver and what the test left open.
func (r *rig) finish() {
	r.closeDriver()
	for _, f := range r.cleanups {
		f()
	}
}

func (r *rig) closeDriver() {
	r.t.Helper()
	if r.closed {
		return
	}
	r.closed = true
	for user := range r.collected { // descriptors that nobody took
		for _, c := range r.collected[user] {
			if c.Kind == uring.KindAccept && c.Res >= 0 {
				unix.Close(int(c.Res))
			}
		}
	}
	if err := r.d.CloseDriver(); err != nil {
		r.t.Errorf("CloseDriver: %v", err)
	}
}

func (r *rig) cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// user returns a fresh user word: all 64 bits must survive.
func (r *rig) user() uint64 {
	r.lastUser++
	return r.lastUser * 0x9e3779b97f4a7c15
}

func (r *rig) track(op uring.Op, user uint64, kind uring.Kind) {
	r.t.Helper()
	if op == 0 {
		r.t.Fatal("an operation has the zero Op")
	}
	if old := r.ops[op]; old != nil {
		r.t.Fatalf("Op %#x of %v handed out twice", uint64(op), *old)
	}
	r.ops[op] = &tracked{user: user, kind: kind}
	r.unended++
}

// step calls Wait once and collects what it returns.
func (r *rig) step(timeout time.Duration) int {
	r.t.Helper()
	cs, err := r.d.Wait(timeout)
	if err != nil {
		r.t.Fatalf("Wait: %v", err)
	}
	for _, c := range cs {
		op := r.ops[c.Op]
		switch {
		case op == nil:
			r.t.Fatalf("completion of an unknown operation: %+v", c)
		case op.ended:
			r.t.Fatalf("completion after the final one: %+v", c)
		case c.User != op.user || c.Kind != op.kind:
			r.t.Fatalf("completion %+v belongs to an operation with %+v", c, *op)
		case c.Flags&uring.More != 0 && c.Res < 0:
			r.t.Fatalf("an error with More: %+v", c)
		}
		if c.Flags&uring.More == 0 {
			op.ended = true
			r.unended--
		}
		r.collected[c.User] = append(r.collected[c.User], c)
	}
	return len(cs)
}

// until calls Wait until cond holds.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		left := time.Until(end)
		if left <= 0 {
			r.t.Fatalf("timeout: %s; stats %+v", what, r.d.Stats())
		}
		r.step(min(left, r.slice))
	}
}

// settle takes everything that is there already.
func (r *rig) settle() {
	r.t.Helper()
	for quiet := 0; quiet < 3; {
		if r.step(0) == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
}

// take returns the oldest completion collected for user.
func (r *rig) take(user uint64) (uring.Completion, bool) {
	cs := r.collected[user]
	if len(cs) == 0 {
		return uring.Completion{}, false
	}
	r.collected[user] = cs[1:]
	return cs[0], true
}

// await returns the next completion for user.
func (r *rig) await(user uint64) uring.Completion {
	r.t.Helper()
	r.until("no completion", func() bool { return len(r.collected[user]) > 0 })
	c, _ := r.take(user)
	return c
}

// awaitFinal drops the completions with More.
func (r *rig) awaitFinal(user uint64) uring.Completion {
	r.t.Helper()
	for {
		c := r.await(user)
		if c.Flags&uring.More == 0 {
			return c
		}
		if c.Kind == uring.KindReceive {
			r.d.Release(c.Buf)
		}
	}
}

// expectFinal wants the final completion to fail with one of errnos.
func (r *rig) expectFinal(user uint64, errnos ...unix.Errno) {
	r.t.Helper()
	if c := r.awaitFinal(user); c.Res >= 0 || !slices.Contains(errnos, c.Errno()) {
		r.t.Fatalf("final completion %+v (%v), want one of %v", c, c.Errno(), errnos)
	}
}

// expectNone wants nothing to be there for user.
func (r *rig) expectNone(user uint64) {
	r.t.Helper()
	r.settle()
	if cs := r.collected[user]; len(cs) > 0 {
		r.t.Fatalf("unexpected completion %+v (%v)", cs[0], cs[0].Errno())
	}
}

func (r *rig) listen(addr netip.AddrPort, opt uring.ListenOptions) uring.Socket {
	r.t.Helper()
	s, err := r.d.Listen(addr, opt)
	if err != nil {
		r.t.Fatalf("Listen(%v): %v", addr, err)
	}
	return s
}

// arm begins a multishot operation on a socket.
func (r *rig) arm(kind uring.Kind, s uring.Socket) (user uint64, op uring.Op) {
	r.t.Helper()
	user = r.user()
	op, err := r.d.Arm(kind, s, user)
	if err != nil {
		r.t.Fatalf("operation of kind %v: %v", kind, err)
	}
	r.track(op, user, kind)
	return user, op
}

func (r *rig) accept(s uring.Socket) (uint64, uring.Op) {
	r.t.Helper()
	return r.arm(uring.KindAccept, s)
}

func (r *rig) ready(s uring.Socket) (uint64, uring.Op) {
	r.t.Helper()
	return r.arm(uring.KindReady, s)
}

func (r *rig) receive(s uring.Socket) (uint64, uring.Op) {
	r.t.Helper()
	return r.arm(uring.KindReceive, s)
}

func (r *rig) connect(local, to netip.AddrPort, opt uring.SocketOptions) (s uring.Socket, user uint64, op uring.Op) {
	r.t.Helper()
	user = r.user()
	s, op, err := r.d.Connect(local, to, opt, user)
	if err != nil {
		r.t.Fatalf("Connect(%v, %v): %v", local, to, err)
	}
	if !s.Valid() {
		r.t.Fatal("Connect returned the zero Socket")
	}
	r.track(op, user, uring.KindConnect)
	return s, user, op
}

// connected is a socket whose connect has succeeded.
func (r *rig) connected(local, to netip.AddrPort, opt uring.SocketOptions) uring.Socket {
	r.t.Helper()
	s, user, _ := r.connect(local, to, opt)
	if c := r.await(user); c.Res != 0 {
		r.t.Fatalf("connect from %v: %v", local, c.Errno())
	}
	return s
}

func (r *rig) send(s uring.Socket, v *uring.Vec, flags uring.SendFlags) (done bool, user uint64, op uring.Op) {
	r.t.Helper()
	user = r.user()
	done, op, err := r.d.Send(s, v, user, flags)
	if err != nil {
		r.t.Fatalf("Send: %v", err)
	}
	if !done {
		r.track(op, user, uring.KindSend)
	}
	return done, user, op
}

// sendAll sends and waits until all of v is out.
func (r *rig) sendAll(s uring.Socket, v *uring.Vec) {
	r.t.Helper()
	if done, user, _ := r.send(s, v, 0); !done {
		if c := r.await(user); int(c.Res) != v.Size() {
			r.t.Fatalf("sent %d (%v), want %d", c.Res, c.Errno(), v.Size())
		}
	}
}

func (r *rig) adopt(fd int32) uring.Socket {
	r.t.Helper()
	s, err := r.d.Adopt(int(fd))
	if err != nil {
		r.t.Fatalf("Adopt(%d): %v", fd, err)
	}
	if s.FD() != int(fd) {
		r.t.Fatalf("Adopt(%d) made a Socket of %d", fd, s.FD())
	}
	return s
}

// vec builds a gather list that is freed when the test is over.
func (r *rig) vec(pieces ...[]byte) *uring.Vec {
	r.t.Helper()
	v, err := uring.NewVec(max(1, len(pieces)))
	must(r.t, err)
	r.cleanup(v.Free)
	for _, p := range pieces {
		if !v.Append(p) {
			r.t.Fatal("gather list full")
		}
	}
	return v
}

// acceptOne returns the next connection of the rig's own listener.
func (r *rig) acceptOne() uring.Socket {
	r.t.Helper()
	c := r.await(r.acceptor)
	if c.Res < 0 || c.Flags&uring.More == 0 {
		r.t.Fatalf("accept: %+v (%v)", c, c.Errno())
	}
	return r.adopt(c.Res)
}

func (r *rig) listening() netip.AddrPort {
	r.t.Helper()
	if !r.listener.Valid() {
		r.listener = r.listen(loopback, uring.ListenOptions{})
		r.acceptor, _ = r.accept(r.listener)
	}
	return r.d.LocalAddr(r.listener)
}

// plain returns a driver's socket whose peer is an ordinary connection.
func (r *rig) plain() (uring.Socket, *net.TCPConn) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.listening().String())
	must(r.t, err)
	r.cleanup(func() { conn.Close() })
	return r.acceptOne(), conn.(*net.TCPConn)
}

// pair returns two connected sockets of the same driver.
func (r *rig) pair(opt uring.SocketOptions) (uring.Socket, uring.Socket) {
	r.t.Helper()
	a := r.connected(netip.AddrPort{}, r.listening(), opt)
	return a, r.acceptOne()
}

// clogged returns a socket with a Send in flight that cannot end, because its
// peer does not read.
func (r *rig) clogged() (s, peer uring.Socket, user uint64, op uring.Op) {
	r.t.Helper()
	s, peer = r.pair(uring.SocketOptions{SendBuffer: 64 << 10})
	done, user, op := r.send(s, r.vec(make([]byte, 64<<20)), 0)
	if done {
		r.t.Fatal("64 MiB fit into the buffers of a socket")
	}
	r.expectNone(user)
	return s, peer, user, op
}

// drain reads until there is nothing more, and says whether the stream ended.
func (r *rig) drain(s uring.Socket) (data []byte, ended bool) {
	r.t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, errno := r.d.Recv(s, buf, nil)
		switch {
		case errno == unix.EAGAIN:
			return data, false
		case errno != 0:
			r.t.Fatalf("Recv: %v", errno)
		case n == 0:
			return data, true
		}
		data = append(data, buf[:n]...)
	}
}

func random(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.NativeEndian.PutUint64(p[i:], rnd.Uint64())
	}
	return p[:n:n]
}

func write(t testing.TB, w io.Writer, p []byte) {
	t.Helper()
	_, err := w.Write(p)
	must(t, err)
}

var must = drivertest.Must
