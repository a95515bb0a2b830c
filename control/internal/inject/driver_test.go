package inject

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// below is a driver that counts what gets to it.
type below struct {
	uring.Driver
	calls int
	shut  []int // how many calls there had been before each shutdown
	done  []uring.Completion
}

func (b *below) Shutdown(uring.Socket) { b.shut = append(b.shut, b.calls) }
func (b *below) Close(uring.Socket)    {}
func (b *below) Send(uring.Socket, *uring.Vec, uint64, uring.SendFlags) (bool, uring.Op, error) {
	b.calls++
	return true, 0, nil
}
func (b *below) Recv(uring.Socket, []byte, []byte) (int, unix.Errno)    { b.calls++; return 1, 0 }
func (b *below) Arm(uring.Kind, uring.Socket, uint64) (uring.Op, error) { return 1, nil }
func (b *below) Wait(time.Duration) ([]uring.Completion, error)         { return b.done, nil }
func (b *below) Detach(uring.Socket) (int, error)                       { return 3, nil }

// run makes a thousand operations, and returns before which of them a socket was shut.
func run(t *testing.T, seed uint64) []int {
	t.Helper()
	b := &below{}
	open := Open(func(int) (uring.Driver, error) { return b, nil }, 10, seed)
	d, err := open(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if i%2 == 0 {
			_, _, _ = d.Send(uring.Socket{}, nil, 1, 0)
		} else {
			_, _ = d.Recv(uring.Socket{}, nil, nil)
		}
	}
	if b.calls != 1000 {
		t.Errorf("%d of 1000 operations got through", b.calls)
	}
	return b.shut
}

func TestOneOperationInSoManyShutsItsSocketDownBySeed(t *testing.T) {
	one, again, other := run(t, 1), run(t, 1), run(t, 2)
	if len(one) < 60 || len(one) > 140 {
		t.Errorf("%d of 1000 operations failed, want about 100", len(one))
	}
	if !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Errorf("failed %v, then %v, with another seed %v", one, again, other)
	}
	for kind := range 2 {
		if !slices.ContainsFunc(one, func(at int) bool { return at%2 == kind }) {
			t.Errorf("no operation of kind %d failed", kind)
		}
	}
}

func TestBytesInBuffersOfTheRingAreOperations(t *testing.T) {
	b := &below{}
	d := New(b, 1, rand.New(rand.NewPCG(1, 1)))
	s := uring.Socket{}
	wait := func(want int, c uring.Completion) {
		t.Helper()
		b.shut, b.done = nil, []uring.Completion{c}
		if _, err := d.Wait(0); err != nil || len(b.shut) != want {
			t.Errorf("%d shut down, want %d, %v", len(b.shut), want, err)
		}
	}
	if _, err := d.Arm(uring.KindReceive, s, 7); err != nil {
		t.Fatal(err)
	}
	came := uring.Completion{Kind: uring.KindReceive, User: 7, Res: 10}
	wait(1, came)
	wait(0, uring.Completion{Kind: uring.KindReceive, User: 7})
	wait(0, uring.Completion{Kind: uring.KindReceive, User: 8, Res: 10})
	wait(0, uring.Completion{Kind: uring.KindSend, User: 7, Res: 10})
	d.Close(s)
	wait(0, came)
	if _, err := d.Arm(uring.KindReceive, s, 7); err != nil {
		t.Fatal(err)
	}
	wait(1, came)
	if _, err := d.Detach(s); err != nil {
		t.Fatal(err)
	}
	wait(0, came)
}
