package loop

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/uring"
)

// quietEngine tells of a quiet send in the first Wait behind it, as a ring does, unless
// the peer takes nothing. It notes how long each Wait may sleep.
type quietEngine struct {
	*fakedriver.Driver
	sock  *fakedriver.Sock
	stuck bool
	waits []time.Duration
}

func (e *quietEngine) Wait(timeout time.Duration) ([]uring.Completion, error) {
	e.waits = append(e.waits, timeout)
	if e.sock.InFlight != nil && !e.stuck {
		e.sock.Finish(0)
	}
	return e.Driver.Wait(timeout)
}

// referrer is a framer that sends one payload, where it lies.
type referrer struct {
	newOwner
	payload []byte
	pending bool
	letGo   int
}

func (r *referrer) Pending(*Socket) bool { return r.pending }

func (r *referrer) Gather(_ *Socket, w *Write) error {
	r.pending = false
	w.Refer(r.payload)
	w.Hold(r)
	return nil
}

func (r *referrer) LetGo() { r.letGo++ }

// Matrix: IO-06
func TestACoreGetsTheMemoryOfAQuietWriteBackBeforeItSleepsAndNeedsNoTimer(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		e := &quietEngine{stuck: stuck}
		b := newBed(t, func(cfg *Config, d *fakedriver.Driver) {
			e.Driver = d
			cfg.Open = func(int) (uring.Driver, error) { return e, nil }
		})
		l, f := b.link()
		e.sock, f.Park = f, true
		r := &referrer{payload: make([]byte, 4<<10), pending: true}
		s := l.sock
		s.link = nil
		s.carry(r)
		s.Mark()
		for range 3 {
			must(t, b.c.turn(true))
			if e.waits[len(e.waits)-1] < 0 {
				break
			}
		}
		if f.SendFlags&uring.SendQuiet == 0 {
			t.Fatal("the write is not quiet")
		}
		last := len(e.waits) - 1
		if e.waits[0] != 0 || e.waits[last] >= 0 || last > 1 {
			t.Errorf("peer stuck %v: it waits %v, want once without sleeping, then without a bound", stuck, e.waits)
		}
		if want := map[bool]int{false: 1, true: 0}[stuck]; r.letGo != want {
			t.Errorf("peer stuck %v: the memory came back %d times", stuck, r.letGo)
		}
		if stuck {
			e.stuck = false // it takes the rest
			must(t, b.c.turn(true))
			if r.letGo != 1 {
				t.Errorf("the memory came back %d times behind the rest", r.letGo)
			}
		}
	}
}
