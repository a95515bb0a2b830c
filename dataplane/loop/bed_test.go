package loop

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
)

// bed is a stepped plane of one core over a fakeDriver, with a clock.
type bed struct {
	t    testing.TB
	p    *Plane
	c    *Core
	d    *fakedriver.Driver
	time time.Duration
}

func newBed(t testing.TB, change func(*Config, *fakedriver.Driver)) *bed {
	t.Helper()
	b := &bed{t: t, d: fakedriver.New()}
	cfg := Config{
		Cores: 1, Stepped: func(*Core, stepped.Stepper) {},
		Open: func(int) (uring.Driver, error) { return b.d, nil },
		Now:  func() time.Duration { return b.time },
		Wall: func() time.Time { return time.Unix(1000, 5).Add(b.time) },
	}
	if change != nil {
		change(&cfg, b.d)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.p, b.c = p, p.Core(0)
	t.Cleanup(b.close)
	return b
}

func (b *bed) close() {
	if !b.d.Closed {
		b.p.Close()
	}
}

// settle runs the core until nothing is left to do.
func (b *bed) settle() {
	b.t.Helper()
	for range 1 << 20 {
		if err := b.c.turn(false); err != nil {
			b.t.Fatal(err)
		}
		if !b.c.busy() && len(b.d.Queue) == 0 {
			return
		}
	}
	b.t.Fatal("the core never comes to rest")
}

// after moves the clock and lets timers fire.
func (b *bed) after(d time.Duration) {
	b.t.Helper()
	b.time += d
	b.settle()
	b.settle()
}

// link makes a connected link over a fake socket.
func (b *bed) link() (*Link, *fakedriver.Sock) {
	f := b.d.Open()
	s := newSocket(b.c)
	l := &Link{core: b.c, sock: s, result: make(chan reply, 1), ahead: BacklogBytes}
	s.sock, s.link = f.Sock, l
	s.arm()
	return l, f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
