package simnet_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// world is two hosts with a driver each, and what their drivers completed.
type world struct {
	t    testing.TB
	net  *simnet.Network
	host [2]*simnet.Host
	drv  [2]simnet.Driver
	done [2][]uring.Completion
}

func newWorld(t testing.TB, seed uint64, opt simnet.Options) *world {
	w := &world{t: t, net: simnet.New(seed, opt)}
	for i := range 2 {
		w.host[i] = w.net.Host(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
		w.drv[i] = w.host[i].Driver()
	}
	return w
}

// collect takes every completion that is there.
func (w *world) collect() {
	for i, d := range w.drv {
		for d.Pending() {
			got, err := d.Wait(0)
			must(w.t, err)
			if len(got) != 1 {
				w.t.Fatalf("%d completions from one Wait", len(got))
			}
			w.done[i] = append(w.done[i], got...)
		}
	}
}

// run lets everything happen that is going to, within a limit of time.
func (w *world) run(limit time.Duration) {
	for end := w.net.Now() + limit; ; {
		w.collect()
		at, ok := w.net.Next()
		if !ok || at > end {
			return
		}
		w.step()
	}
}

// step lets the next thing happen.
func (w *world) step() { advance(w.net) }

// find is the last completion of a kind with a user word.
func (w *world) find(side int, kind uring.Kind, user uint64) (last uring.Completion, n int) {
	for _, c := range w.done[side] {
		if c.Kind == kind && c.User == user {
			last, n = c, n+1
		}
	}
	return last, n
}

var must = drivertest.Must

const (
	userAccept  = 1
	userConnect = 2
	userReady   = 3
	userSend    = 4
	userReceive = userReady // a socket has one of both
)

// connect joins the hosts: the first dials, the second accepts.
func (w *world) connect() (a, b uring.Socket) {
	w.t.Helper()
	l, err := w.drv[1].Listen(netip.AddrPortFrom(w.host[1].IP(), 0), uring.ListenOptions{ReusePort: true})
	must(w.t, err)
	_, err = w.drv[1].Arm(uring.KindAccept, l, userAccept)
	must(w.t, err)
	a, _, err = w.drv[0].Connect(netip.AddrPort{}, w.drv[1].LocalAddr(l), uring.SocketOptions{}, userConnect)
	must(w.t, err)
	w.run(time.Minute)
	if c, n := w.find(0, uring.KindConnect, userConnect); n != 1 || c.Res != 0 {
		w.t.Fatalf("%d connects, result %d", n, c.Res)
	}
	c, n := w.find(1, uring.KindAccept, userAccept)
	if n != 1 || c.Res < 0 || c.Flags&uring.More == 0 {
		w.t.Fatalf("%d accepts: %+v", n, c)
	}
	b, err = w.drv[1].Adopt(int(c.Res))
	must(w.t, err)
	for i, s := range []uring.Socket{a, b} {
		_, err := w.drv[i].Arm(uring.KindReady, s, userReady)
		must(w.t, err)
		if s.FD() < 1<<20 { // who closes or shuts it down by mistake must hit nothing
			w.t.Errorf("socket %d could be a descriptor of the process", s.FD())
		}
	}
	if w.drv[0].LocalAddr(a) != w.drv[1].PeerAddr(b) || w.drv[0].PeerAddr(a) != w.drv[1].LocalAddr(b) {
		w.t.Error("the ends disagree about their addresses")
	}
	return a, b
}

// read takes what has arrived at b.
func (w *world) read(side int, s uring.Socket) (got []byte, errno unix.Errno, end bool) {
	p, q := make([]byte, 700), make([]byte, 300)
	for {
		n, errno := w.drv[side].Recv(s, p, q)
		switch {
		case errno != 0:
			return got, errno, false
		case n == 0:
			return got, 0, true
		}
		got = append(got, p[:min(n, len(p))]...)
		got = append(got, q[:max(n-len(p), 0)]...)
	}
}

// write sends p in one Send and says whether it was done at once.
func (w *world) write(side int, s uring.Socket, p []byte, user uint64) (*uring.Vec, bool) {
	v, err := uring.NewVec(4)
	must(w.t, err)
	w.t.Cleanup(v.Free)
	half := len(p) / 2
	v.Append(p[:half:half])
	v.Append(append([]byte(nil), p[half:]...))
	done, _, err := w.drv[side].Send(s, v, user, 0)
	must(w.t, err)
	return v, done
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*13 + i>>8)
	}
	return p
}

var weather = simnet.Options{Latency: time.Millisecond, Jitter: 3 * time.Millisecond, Segment: 900, Window: 5000}

func TestBytesArriveInOrderAndTheEndBehindThem(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed, weather)
		a, b := w.connect()
		sent := pattern(40000)
		_, done := w.write(0, a, sent, userSend)
		if done {
			t.Fatal("more than a window went at once")
		}
		var got []byte
		for len(got) < len(sent) {
			w.run(time.Second)
			more, errno, _ := w.read(1, b)
			if errno != unix.EAGAIN {
				t.Fatalf("seed %d: %v in the middle of the stream", seed, errno)
			}
			if len(more) == 0 {
				t.Fatalf("seed %d: stuck at byte %d", seed, len(got))
			}
			got = append(got, more...)
		}
		w.run(time.Second)
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: bytes differ", seed)
		}
		if c, n := w.find(0, uring.KindSend, userSend); n != 1 || int(c.Res) != len(sent) {
			t.Fatalf("seed %d: %d completions of the send, result %d", seed, n, c.Res)
		}
		w.write(0, a, []byte("last"), userSend+1)
		w.drv[0].Close(a)
		w.run(time.Second)
		if got, errno, end := w.read(1, b); string(got) != "last" || !end || errno != 0 {
			t.Fatalf("seed %d: at the end %q, %v, end=%v", seed, got, errno, end)
		}
	}
}

func TestAResetReachesBothEnds(t *testing.T) {
	w := newWorld(t, 3, weather)
	a, b := w.connect()
	_, done := w.write(0, a, pattern(20000), userSend)
	if done {
		t.Fatal("the send is over")
	}
	w.host[1].ResetAll()
	w.run(time.Second)
	for i, s := range []uring.Socket{a, b} {
		if _, errno, _ := w.read(i, s); errno != unix.ECONNRESET {
			t.Errorf("end %d reads %v", i, errno)
		}
	}
	if c, n := w.find(0, uring.KindSend, userSend); n != 1 || c.Errno() != unix.ECONNRESET {
		t.Errorf("%d completions of the send, %v", n, c.Errno())
	}
	w.write(0, a, []byte("x"), userSend+1)
	w.run(time.Second)
	if c, n := w.find(0, uring.KindSend, userSend+1); n != 1 || c.Errno() != unix.EPIPE {
		t.Errorf("a write after it: %d completions, %v", n, c.Errno())
	}
	if w.net.Counts().Resets == 0 {
		t.Error("no reset was counted")
	}
}

func TestACutDelaysAndLosesNothing(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(t, seed, weather)
		a, b := w.connect()
		sent := pattern(3000)
		w.write(0, a, sent[:1500], userSend)
		w.step() // something is on its way
		w.net.Cut(w.host[0], w.host[1])
		w.run(time.Minute)
		before, _, _ := w.read(1, b)
		if len(before) >= 1500 {
			t.Fatalf("seed %d: everything passed a cut", seed)
		}
		w.write(0, a, sent[1500:], userSend+1)
		w.run(time.Minute)
		if more, _, _ := w.read(1, b); len(more) != 0 {
			t.Fatalf("seed %d: %d bytes passed a cut", seed, len(more))
		}
		// The other direction is open.
		w.write(1, b, []byte("back"), userSend)
		w.run(time.Minute)
		if got, _, _ := w.read(0, a); string(got) != "back" {
			t.Fatalf("seed %d: the other direction brought %q", seed, got)
		}
		w.net.Heal(w.host[0], w.host[1])
		w.run(time.Minute)
		after, errno, _ := w.read(1, b)
		if errno != unix.EAGAIN || !bytes.Equal(append(before, after...), sent) {
			t.Fatalf("seed %d: %d bytes after healing, %v", seed, len(before)+len(after), errno)
		}
	}
}

// The way is free again while some bytes are lost and others still fly: they
// must not overtake.
func TestAShortCutDoesNotReorder(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t, seed, weather)
		a, b := w.connect()
		sent := pattern(4000)
		w.write(0, a, sent, userSend)
		for range 3 {
			w.step()
			w.net.Cut(w.host[0], w.host[1])
			for range w.net.Rand().IntN(4) {
				w.step()
			}
			w.net.Heal(w.host[0], w.host[1])
		}
		w.drv[0].Close(a)
		w.run(time.Minute)
		if got, _, end := w.read(1, b); !bytes.Equal(got, sent) || !end {
			t.Fatalf("seed %d: %d bytes of %d, end=%v", seed, len(got), len(sent), end)
		}
	}
}

func TestClosingEndsEveryOperationOnce(t *testing.T) {
	w := newWorld(t, 6, weather)
	a, _ := w.connect()
	if _, done := w.write(0, a, pattern(20000), userSend); done {
		t.Fatal("the send is over")
	}
	var lost uring.Socket
	for _, user := range []uint64{76, 77} { // the last one is closed, the driver ends over the other
		var err error
		lost, _, err = w.drv[0].Connect(netip.AddrPort{}, netip.MustParseAddrPort("10.9.9.9:1"), uring.SocketOptions{}, user)
		must(t, err)
	}
	w.collect()
	for _, s := range []uring.Socket{a, a, lost, lost} {
		w.drv[0].Close(s)
	}
	w.run(time.Minute)
	for user, kind := range map[uint64]uring.Kind{userSend: uring.KindSend, userReady: uring.KindReady, userConnect: uring.KindConnect, 77: uring.KindConnect} {
		final := 0
		for _, c := range w.done[0] {
			if c.Kind == kind && c.User == user && c.Flags&uring.More == 0 {
				final++
			}
		}
		if final != 1 {
			t.Errorf("kind %d: %d final completions", kind, final)
		}
	}
	must(t, w.drv[0].CloseDriver())
	if w.drv[0].Pending() {
		t.Error("a closed driver completes something")
	}
}

func TestTheOtherEndHearsOfAnEnd(t *testing.T) {
	for _, one := range []struct {
		name         string
		do           func(w *world, b uring.Socket)
		bytes        int
		first, later unix.Errno // what the other end reads, and once it has sent more
	}{
		{"closed", func(w *world, b uring.Socket) { w.drv[1].Close(b) }, 4000, 0, unix.ECONNRESET},
		{"reset", func(w *world, b uring.Socket) { w.drv[1].Reset(b) }, 0, unix.ECONNRESET, unix.ECONNRESET},
		{"a process that dies", func(w *world, _ uring.Socket) { w.host[1].Die(false) }, 0, unix.ECONNRESET, unix.ECONNRESET},
		{"a machine that dies", func(w *world, _ uring.Socket) { w.host[1].Die(true) }, 4000, unix.EAGAIN, unix.EAGAIN},
	} {
		w := newWorld(t, 7, weather)
		a, b := w.connect()
		w.write(1, b, pattern(3000), userSend)
		w.run(time.Second)
		w.write(1, b, pattern(1000), userSend+1) // on their way
		one.do(w, b)
		w.run(time.Second)
		if got, errno, end := w.read(0, a); len(got) != one.bytes || errno != one.first || end != (errno == 0) {
			t.Errorf("%s: %d bytes, %v, end=%v", one.name, len(got), errno, end)
		}
		w.write(0, a, []byte("hello?"), userSend)
		w.run(time.Second)
		if _, errno, end := w.read(0, a); errno != one.later || end {
			t.Errorf("%s, then: %v, end=%v", one.name, errno, end)
		}
	}
}

func TestGroupMembersShareAPortAndOthersDoNot(t *testing.T) {
	w := newWorld(t, 9, simnet.Options{})
	at := netip.AddrPortFrom(w.host[0].IP(), 6789)
	for i := range 3 {
		if _, err := w.drv[0].Listen(at, uring.ListenOptions{ReusePort: true}); err != nil {
			t.Fatalf("member %d: %v", i, err)
		}
	}
	if _, err := w.drv[0].Listen(at, uring.ListenOptions{}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("%v", err)
	}
}

// An accept that has ended is not ended again by the end of its listener, at whichever
// driver that is now.
func TestAListenerThatClosesEndsOnlyTheAcceptThatIsArmed(t *testing.T) {
	w := newWorld(t, 9, simnet.Options{})
	l, err := w.drv[0].Listen(netip.AddrPortFrom(w.host[0].IP(), 0), uring.ListenOptions{})
	must(t, err)
	op, err := w.drv[0].Arm(uring.KindAccept, l, userAccept)
	must(t, err)
	w.drv[0].Cancel(op)
	w.run(time.Second)
	if c, n := w.find(0, uring.KindAccept, userAccept); n != 1 || c.Res != -int32(unix.ECANCELED) {
		t.Fatalf("%d ends of the accept: %+v", n, c)
	}
	w.drv[0].Close(l)
	w.run(time.Second)
	if c, n := w.find(0, uring.KindAccept, userAccept); n != 1 {
		t.Errorf("%d ends of the accept: %+v", n, c)
	}
}

// scenario is a run with every kind of trouble.
func scenario(t testing.TB, seed uint64, opt simnet.Options) (uint64, string) {
	w := newWorld(t, seed, opt)
	a, b := w.connect()
	log := ""
	for i := range 40 {
		rng := w.net.Rand()
		switch rng.IntN(5) {
		case 0:
			w.net.Cut(w.host[0], w.host[1])
		case 1:
			w.net.Heal(w.host[0], w.host[1])
		default:
			if _, done := w.write(1, b, pattern(rng.IntN(100)), uint64(100+i)); done {
				log += "!"
			}
			w.write(0, a, pattern(rng.IntN(60)), uint64(200+i))
		}
		w.run(time.Duration(rng.IntN(5)) * time.Millisecond)
		got, errno, _ := w.read(1, b)
		log += fmt.Sprint(len(got), errno, " ")
		got, errno, _ = w.read(0, a)
		log += fmt.Sprint(len(got), errno, " ", w.net.Now(), "\n")
	}
	return w.net.Hash(), log
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	opt := weather
	opt.ResetEvery = 60
	hashes := map[uint64]bool{}
	for seed := range uint64(20) {
		h1, log1 := scenario(t, seed, opt)
		h2, log2 := scenario(t, seed, opt)
		if h1 != h2 || log1 != log2 {
			t.Fatalf("seed %d: two runs differ", seed)
		}
		hashes[h1] = true
	}
	if len(hashes) != 20 {
		t.Errorf("20 seeds gave %d runs", len(hashes))
	}
}

// What a receive brings, whatever ends it on the way, is the stream, and its end.
// Matrix: IO-02
func TestAReceiveBringsTheStreamInOrderAndItsEnd(t *testing.T) {
	ended := 0
	for seed := range uint64(20) {
		opt := weather
		opt.ReceiveBuffers = 2000
		w := newWorld(t, seed, opt)
		a, b := w.connect()
		if info := w.drv[1].Info(); !info.Receive {
			t.Fatalf("%+v", info)
		}
		watch, err := w.drv[1].Arm(uring.KindReady, b, userReady)
		must(t, err)
		w.drv[1].Cancel(watch)
		op, err := w.drv[1].Arm(uring.KindReceive, b, userReceive)
		must(t, err)
		sent := pattern(40000)
		w.write(0, a, sent, userSend)
		var got []byte
		over := false
		for steps := 0; !over; steps++ {
			if steps > 10000 {
				t.Fatalf("seed %d: stuck at byte %d", seed, len(got))
			}
			w.done[1] = nil
			w.run(time.Second)
			for _, c := range w.done[1] {
				if c.Kind != uring.KindReceive {
					continue
				}
				if c.Op != op || over {
					t.Fatalf("seed %d: a completion behind the last: %+v", seed, c)
				}
				got = append(got, c.Data...)
				w.drv[1].Release(c.Buf)
				if c.Flags&uring.More != 0 {
					continue
				}
				if c.Res == 0 {
					over = true
					break
				}
				if ended++; c.Res < 0 && c.Errno() != unix.ENOBUFS {
					t.Fatalf("seed %d: %v", seed, c.Errno())
				}
				op, err = w.drv[1].Arm(uring.KindReceive, b, userReceive)
				must(t, err)
			}
			if len(got) == len(sent) {
				w.drv[0].Close(a)
			}
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d bytes, which differ", seed, len(got))
		}
	}
	if ended == 0 {
		t.Error("no receive ended early")
	}
}

func TestTheEndOfWritingComesBehindTheBytesAndLeavesReading(t *testing.T) {
	w := newWorld(t, 3, weather)
	a, b := w.connect()
	sent := pattern(3000)
	w.write(0, a, sent, userSend)
	w.drv[0].EndWriting(a)
	w.run(time.Second)
	if got, errno, end := w.read(1, b); !bytes.Equal(got, sent) || errno != 0 || !end {
		t.Errorf("%d bytes, %v, end %v", len(got), errno, end)
	}
	w.write(1, b, []byte("back"), userSend)
	w.run(time.Second)
	if got, errno, end := w.read(0, a); string(got) != "back" || errno != unix.EAGAIN || end {
		t.Errorf("%q, %v, end %v", got, errno, end)
	}
	w.write(0, a, []byte("more"), userSend)
	w.run(time.Second)
	if c, _ := w.find(0, uring.KindSend, userSend); c.Errno() != unix.EPIPE {
		t.Errorf("a send behind the end: %+v", c)
	}
}

func TestACancelledReceiveLeavesWhatComesToOthers(t *testing.T) {
	w := newWorld(t, 3, simnet.Options{Whole: true, ReceiveBuffers: 1 << 20})
	a, b := w.connect()
	op, err := w.drv[1].Arm(uring.KindReceive, b, userReceive)
	must(t, err)
	w.write(0, a, []byte("one"), userSend)
	w.run(time.Second)
	if _, err := w.drv[1].Detach(b); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a socket that receives is given away: %v", err)
	}
	w.drv[1].Cancel(op)
	w.write(0, a, []byte("two"), userSend)
	w.run(time.Second)
	var got []byte
	for _, c := range w.done[1] {
		if c.Kind == uring.KindReceive {
			got = append(got, c.Data...)
		}
	}
	if c, _ := w.find(1, uring.KindReceive, userReceive); string(got) != "one" || c.Errno() != unix.ECANCELED || c.Flags&uring.More != 0 {
		t.Errorf("received %q, then %+v", got, c)
	}
	if got, errno, _ := w.read(1, b); string(got) != "two" || errno != unix.EAGAIN {
		t.Errorf("%q behind it, %v", got, errno)
	}
	w.done[1] = nil
	w.drv[1].Cancel(0) // which names no operation
	w.run(time.Second)
	if len(w.done[1]) > 0 {
		t.Errorf("the end of nothing: %+v", w.done[1])
	}
}
