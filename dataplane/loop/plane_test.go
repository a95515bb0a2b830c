package loop

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func TestConfigReportsEveryProblemAtOnce(t *testing.T) {
	bad := Config{Cores: -1, Spin: time.Hour, Receive: "sometimes", PoolKeep: -1}
	err := bad.Validate()
	if !errors.Is(err, errConfig) {
		t.Fatal(err)
	}
	for _, part := range []string{"cores", "spin", "receive", "negative"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if _, err := New(bad); !errors.Is(err, errConfig) {
		t.Errorf("New: %v", err)
	}
	var zero Config
	must(t, zero.Validate())
}

func TestACoreThatCannotOpenIsNamed(t *testing.T) {
	refused := errors.New("no ring for you")
	for _, steps := range []func(*Core, stepped.Stepper){nil, func(*Core, stepped.Stepper) {}} {
		drivertest.CheckLeaks(t, func() {
			_, err := New(Config{Cores: 3, Stepped: steps, Open: func(core int) (uring.Driver, error) {
				if core == 2 {
					return nil, refused
				}
				return uring.Open(uring.Config{Backend: uring.Epoll})
			}})
			if !errors.Is(err, refused) || !strings.Contains(err.Error(), "core 2") {
				t.Errorf("stepped=%v: %v", steps != nil, err)
			}
		})
	}
}

func TestPlaneKnowsItsCores(t *testing.T) {
	p := newPlane(t, Config{Cores: 3, Driver: uring.Config{Backend: uring.Epoll}, Pin: true})
	if p.Cores() != 3 || p.Info().Backend != uring.Epoll {
		t.Errorf("%d cores, %s", p.Cores(), p.Info().Backend)
	}
	for i := range 3 {
		if st := stats(t, p.Core(i)); st.Core != i || p.Core(i).ID() != i || st.Backend != "epoll" || st.Receive != "ready" {
			t.Errorf("core %d: %+v", i, st)
		}
	}
}

// borrowed is a buffer that is lent to another goroutine.
type borrowed struct {
	loan Loan
	buf  *Buffer
}

func (b *borrowed) Returned(c *Core) { c.TakeBack(b.buf) }

// What is given back while its core closes comes back to it all the same.
// Matrix: XC-12
func TestAReleaseRacingWithCloseLosesNoMemory(t *testing.T) {
	for round := range 300 {
		p := newPlane(t, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
		c := p.Core(0)
		lent := make(chan *borrowed)
		must(t, c.Do(func(c *Core) {
			b := &borrowed{}
			b.loan.Of = b
			b.buf, _ = c.Lend(100)
			lent <- b
		}))
		b := <-lent
		released := make(chan struct{})
		go func() { c.Return(&b.loan); close(released) }()
		p.Close()
		<-released
		c.afterEnd.Lock()
		left := c.pool.inUse
		chunks := len(c.pool.chunks)
		c.afterEnd.Unlock()
		if left != 0 || chunks != 0 {
			t.Fatalf("round %d: %d bytes, %d chunks are lost", round, left, chunks)
		}
	}
}

// Matrix: XC-12
func TestWorkForAStoppedCoreIsRefused(t *testing.T) {
	p := newPlane(t, Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}})
	p.Close()
	if err := p.Core(0).Do(func(*Core) { t.Error("it ran") }); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
	if _, err := p.Core(0).Stats(); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
	p.Core(0).post(&Task{Run: func(*Core) { t.Error("what came as it ended ran") }, of: &notLate})
	ran := make(chan struct{})
	p.Core(0).Post(&Task{Run: func(*Core) { close(ran) }})
	<-ran
}

func TestAStrayAcceptIsClosed(t *testing.T) {
	b := newBed(t, nil)
	f := b.d.Open()
	b.d.Queue = append(b.d.Queue, uring.Completion{Kind: uring.KindAccept, User: 77<<32 | 5, Res: int32(f.Sock.FD()), Flags: uring.More})
	b.settle()
	if f.CloseCalls != 1 || b.c.stats.Stray != 1 {
		t.Errorf("closed %d times, %d stray", f.CloseCalls, b.c.stats.Stray)
	}
}
