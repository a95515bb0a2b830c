package loop

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
)

// bed is a plane of one core over a fake driver, which the test turns itself.
type bed struct {
	*planetest.Bed
	t testing.TB
	p *Plane
	c *Core
	d *fakedriver.Driver // of the core
}

func newBed(t testing.TB, change func(*Config, *fakedriver.Driver)) *bed {
	t.Helper()
	b := &bed{Bed: planetest.NewBed(t), t: t}
	b.d = b.D
	cfg := Config{Cores: 1, Stepped: func(_ *Core, s stepped.Stepper) { b.By = s }, Open: b.Open, Now: b.Now, Wall: b.Wall}
	if change != nil {
		change(&cfg, b.d)
	}
	p, err := New(cfg)
	must(t, err)
	b.p, b.c = p, p.Core(0)
	t.Cleanup(b.close)
	return b
}

func (b *bed) close() {
	if !b.d.Closed {
		b.p.Close()
	}
}

func (b *bed) settle() { b.t.Helper(); b.Settle() }

func (b *bed) after(d time.Duration) { b.t.Helper(); b.After(d) }

// link makes a connected link over a fake socket.
func (b *bed) link() (*Link, *fakedriver.Sock) {
	f := b.d.Open()
	s := newSocket(b.c)
	l := &Link{core: b.c, sock: s, result: make(chan reply, 1), ahead: BacklogBytes}
	s.sock, s.link = f.Sock, l
	s.arm()
	return l, f
}
