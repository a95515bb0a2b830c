package faulty_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func TestTheTablesHaveEveryRequestAndNoCellTwice(t *testing.T) {
	seen := map[string]bool{}
	of := map[faulty.Request]int{}
	for _, c := range append(faulty.Table(), faulty.FileTable()...) {
		if seen[c.String()] || c.Fault == (faulty.Fault{}) || c.Then == "" {
			t.Errorf("%v is there twice, or empty: %v", c, c.Then)
		}
		seen[c.String()] = true
		of[c.Request]++
	}
	for _, r := range []faulty.Request{
		faulty.Open, faulty.Listen, faulty.Adopt, faulty.Detach, faulty.Accept, faulty.AcceptEnd, faulty.Connect, faulty.ConnectEnd,
		faulty.Ready, faulty.ReadyEnd, faulty.Receive, faulty.ReceiveEnd, faulty.Read, faulty.Send, faulty.SendEnd, faulty.Map, faulty.Wait, faulty.Close,
		faulty.AdoptFile, faulty.AskFile, faulty.ReadFileEnd, faulty.WriteFileEnd, faulty.SyncFileEnd, faulty.AllocateFileEnd,
	} {
		if of[r] == 0 {
			t.Errorf("%s has no cell", r)
		}
		delete(of, r)
	}
	if len(of) > 0 {
		t.Errorf("unknown requests %v", of)
	}
}

// pair is two hosts with faulty drivers, and what they have answered.
type pair struct {
	t    *testing.T
	net  *simnet.Network
	d    [2]faulty.Driver
	done map[uring.Kind][]uring.Completion // by kind: each is asked once
}

func newPair(t *testing.T, ask func(faulty.Request) faulty.Fault) *pair {
	p := &pair{t: t, net: simnet.New(1, simnet.Options{}), done: map[uring.Kind][]uring.Completion{}}
	for i := range p.d {
		p.d[i] = faulty.New(p.net.Host(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})).Driver(), ask)
	}
	return p
}

// run lets everything happen that can.
func (p *pair) run() {
	p.t.Helper()
	for range 10_000 {
		busy := false
		for _, d := range p.d {
			for d.Pending() {
				busy = true
				got, err := d.Wait(0)
				must(p.t, err)
				for _, c := range got {
					p.done[c.Kind] = append(p.done[c.Kind], c)
				}
			}
		}
		if at, ok := p.net.Next(); ok && at < time.Minute {
			p.net.Advance(at)
			p.net.Step()
		} else if !busy {
			return
		}
	}
	p.t.Fatal("it never ends")
}

// Whatever a driver answers, each operation has one final completion, which is the
// last, and is the fault.
func TestEveryFaultyAnswerIsTheLastOfItsOperation(t *testing.T) {
	kinds := map[faulty.Request]uring.Kind{
		faulty.AcceptEnd: uring.KindAccept, faulty.ConnectEnd: uring.KindConnect, faulty.ReadyEnd: uring.KindReady, faulty.SendEnd: uring.KindSend,
	}
	for _, c := range faulty.Table() {
		kind, ok := kinds[c.Request]
		if !ok {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			s := &faulty.Strike{At: c.Request, Fault: c.Fault, Nth: 1}
			p := newPair(t, s.Ask)
			at := netip.MustParseAddrPort("10.0.0.2:6800")
			l, err := p.d[1].Listen(at, uring.ListenOptions{})
			must(t, err)
			_, err = p.d[1].Arm(uring.KindAccept, l, 1)
			must(t, err)
			a, _, err := p.d[0].Connect(netip.AddrPort{}, at, uring.SocketOptions{}, 2)
			must(t, err)
			p.run()
			b, err := p.d[1].Adopt(int(p.done[uring.KindAccept][0].Res))
			must(t, err)
			_, err = p.d[1].Arm(uring.KindReady, b, 3)
			must(t, err)
			v, err := uring.NewVec(1)
			must(t, err)
			defer v.Free()
			v.Append(make([]byte, 100))
			ended, _, err := p.d[0].Send(a, v, 4, 0)
			must(t, err)
			p.run()
			p.d[0].Close(a)
			p.d[1].Close(b)
			p.d[1].Close(l)
			p.run()
			if !s.Struck() {
				t.Fatal("it never failed")
			}
			for k, list := range p.done {
				final := 0
				for i, one := range list {
					if one.Flags&uring.More == 0 {
						final++
					}
					if last := i == len(list)-1; last != (one.Flags&uring.More == 0) {
						t.Errorf("kind %d: %+v", k, list)
					}
				}
				if final != 1 {
					t.Errorf("kind %d: %d final completions", k, final)
				}
			}
			if ended && kind == uring.KindSend {
				t.Error("a send that fails has no completion")
			}
			found := c.Fault.Errno == 0
			for _, one := range p.done[kind] {
				found = found || one.Errno() == c.Fault.Errno
			}
			if !found {
				t.Errorf("no answer has the errno: %+v", p.done[kind])
			}
		})
	}
}

// lazy is a driver that tells of a quiet send never.
type lazy struct{ uring.Driver }

func (l lazy) Send(s uring.Socket, v *uring.Vec, user uint64, flags uring.SendFlags) (bool, uring.Op, error) {
	if flags&uring.SendQuiet != 0 {
		return false, 1, nil
	}
	return l.Driver.Send(s, v, user, flags)
}

// A driver may be late with the success of a quiet send, never with an error.
func TestAQuietSendThatFailsIsToldAtOnce(t *testing.T) {
	for _, c := range faulty.Table() {
		if c.Request != faulty.SendEnd || c.Fault.Form == faulty.Late {
			continue
		}
		s := &faulty.Strike{At: c.Request, Fault: c.Fault, Nth: 1}
		p := newPair(t, s.Ask)
		p.d[0] = faulty.New(lazy{p.net.Host(netip.MustParseAddr("10.0.0.3")).Driver()}, s.Ask)
		at := netip.MustParseAddrPort("10.0.0.2:6800")
		_, err := p.d[1].Listen(at, uring.ListenOptions{})
		must(t, err)
		a, _, err := p.d[0].Connect(netip.AddrPort{}, at, uring.SocketOptions{}, 2)
		must(t, err)
		p.run()
		v, err := uring.NewVec(1)
		must(t, err)
		v.Append(make([]byte, 100))
		_, _, err = p.d[0].Send(a, v, 4, uring.SendQuiet)
		must(t, err)
		got, err := p.d[0].Wait(0)
		must(t, err)
		if len(got) != 1 || got[0].Kind != uring.KindSend || got[0].Errno() != c.Fault.Errno || c.Fault.Form == faulty.Short && got[0].Res != 50 {
			t.Errorf("%v: answered %+v", c, got)
		}
		v.Free()
	}
}

func TestAWaitThatFailedFailsForEver(t *testing.T) {
	s := &faulty.Strike{At: faulty.Wait, Fault: faulty.Fault{Errno: unix.EBADR}, Nth: 1}
	p := newPair(t, s.Ask)
	for range 3 {
		if _, err := p.d[0].Wait(0); !errors.Is(err, unix.EBADR) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := p.d[1].Wait(0); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

func TestTheSameSourceGivesTheSameFaults(t *testing.T) {
	every := map[faulty.Request]int{faulty.Send: 3, faulty.SendEnd: 5}
	a, b := faulty.NewRandom(rand.New(rand.NewPCG(1, 2)), every), faulty.NewRandom(rand.New(rand.NewPCG(1, 2)), every)
	for range 1000 {
		for _, r := range faulty.Requests() {
			x, y := a.Ask(r), b.Ask(r)
			if x != y || x != (faulty.Fault{}) && every[r] == 0 {
				t.Fatalf("%s: %v and %v", r, x, y)
			}
		}
	}
	if n := a.Count(faulty.Send); n < 200 || n > 500 {
		t.Errorf("%d of 1000 fail, want a third", n)
	}
	a.Stop()
	for range 1000 {
		if a.Ask(faulty.Send) != (faulty.Fault{}) {
			t.Fatal("a fault behind Stop")
		}
	}
}

// Direct I/O takes whole blocks only: a request for one is not made a smaller one.
func TestAShortRequestForOneBlockIsNoMisalignedOne(t *testing.T) {
	for _, size := range []int{512, 1024, 1536} {
		ask := func(r faulty.Request) (f faulty.Fault) {
			if r == faulty.ReadFileEnd || r == faulty.WriteFileEnd {
				f.Form = faulty.Short
			}
			return f
		}
		p := newPair(t, ask)
		host := p.net.Host(netip.AddrFrom4([4]byte{10, 0, 0, 3}))
		p.d[0] = faulty.New(host.Driver(), ask)
		must(t, host.Disk().MakeDir("/d"))
		fd, err := host.Disk().Open("/d/f", uring.FileOptions{Write: true, Create: true, Direct: uring.Direct})
		must(t, err)
		file, err := p.d[0].AdoptFile(fd)
		must(t, err)
		mem, err := uring.Map(4096)
		must(t, err)
		v, err := uring.NewVec(1)
		must(t, err)
		v.Append(mem.Bytes()[:size])
		_, err = p.d[0].AskFile(file, uring.FileRequest{Kind: uring.KindWrite, Vec: v, User: 1})
		must(t, err)
		p.run()
		_, err = p.d[0].AskFile(file, uring.FileRequest{Kind: uring.KindRead, Vec: v, User: 2})
		must(t, err)
		p.run()
		for _, kind := range []uring.Kind{uring.KindWrite, uring.KindRead} {
			if got := p.done[kind]; len(got) != 1 || got[0].Res <= 0 || int(got[0].Res) >= size {
				t.Errorf("%v of %d bytes: %+v", kind, size, got)
			}
		}
		v.Free()
		must(t, mem.Unmap())
	}
}

var must = drivertest.Must
