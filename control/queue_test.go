package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The rule is the same for a message of a peer and for one of our own.
// Matrix: HI-11
func TestAMessageGoesToTheFirstThatTakesItElseToTheFirstThatQueues(t *testing.T) {
	const taken, mine, none = 1, 2, 3 // message types
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("local ", local), func(t *testing.T) {
			m := Messenger{s: new(sessions.Manager)}
			var c Conn
			got := ""
			fast := func(name string, takes uint16) func(*Conn, *Message) bool {
				return func(_ *Conn, msg *Message) bool {
					got += name
					return msg.Type == takes
				}
			}
			queued := func(name string) func(*Conn, *Message) {
				return func(*Conn, *Message) { got += name }
			}
			m.chain.setSelf()
			m.chain.list = []*Dispatcher{{Fast: fast("a", 0)}, {Fast: fast("b", mine), Queued: queued("B")}, {Fast: fast("c", taken), Queued: queued("C")}, {}}
			give := func(typ uint16) string {
				got = ""
				msg := NewMessage(typ, nil, nil)
				if local {
					c.queue.push(&m, &c, &m.chain.self, msg)
				} else {
					m.dispatch(&c, msg)
					msg.Release()
				}
				<-c.queue.drained()
				return got
			}
			for typ, want := range map[uint16]string{mine: "ab", taken: "abc", none: "abcB"} {
				if got := give(typ); got != want {
					t.Errorf("type %d: %q, want %q", typ, got, want)
				}
			}
			m.chain.list = m.chain.list[:1]
			if give(none); m.chain.dropped.Load() != 1 {
				t.Errorf("%d messages dropped", m.chain.dropped.Load())
			}
		})
	}
}

// What the goroutine of a connection has taken out of the queue is of the ended
// session, too.
// Matrix: INV-03
func TestNothingOfAnEndedSessionIsDispatched(t *testing.T) {
	m, c := &Messenger{s: new(sessions.Manager)}, &Conn{}
	entered, let := make(chan uint64), make(chan struct{})
	freed := make(chan uint64, 10)
	d := &Dispatcher{Queued: func(_ *Conn, msg *Message) { entered <- msg.TID; <-let }}
	push := func(ids ...uint64) {
		for _, id := range ids {
			msg := NewMessage(1, nil, nil)
			msg.TID, msg.Free = id, func(m *Message) { freed <- m.TID }
			c.queue.push(m, c, d, msg)
		}
	}
	dispatched := func(want uint64) {
		t.Helper()
		select {
		case id := <-entered:
			if id != want {
				t.Fatalf("message %d is dispatched, want %d", id, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("message %d is not dispatched", want)
		}
	}
	push(0)
	dispatched(0)
	push(1, 2, 3)
	let <- struct{}{}
	dispatched(1) // and 2 and 3 are in the same batch
	push(4)
	c.queue.discard(c)
	push(5)
	let <- struct{}{}
	dispatched(5)
	let <- struct{}{}
	<-c.queue.drained()
	if len(freed) != 6 {
		t.Errorf("%d of 6 messages are freed", len(freed))
	}
}

// steady is a driver that reads one byte each time.
type steady struct{ uring.Driver }

func (steady) Info() uring.Info                            { return uring.Info{} }
func (steady) Recv(uring.Socket, []byte) (int, unix.Errno) { return 1, 0 }

func TestOneOperationInSoManyFailsBySeedAndCore(t *testing.T) {
	failed := func(seed uint64, core int) (list []int) {
		i := injector{Inject: Inject{Seed: seed, SocketFailures: 10}}
		d, err := i.failing(func(int) (uring.Driver, error) { return steady{}, nil })(core)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 1000 {
			if _, errno := d.Recv(uring.Socket{}, nil); errno != 0 {
				list = append(list, n)
			}
		}
		return list
	}
	one, again, other, neighbour := failed(1, 0), failed(1, 0), failed(2, 0), failed(1, 1)
	if len(one) < 60 || len(one) > 140 {
		t.Errorf("%d of 1000 operations failed, want about 100", len(one))
	}
	if !slices.Equal(one, again) || slices.Equal(one, other) || slices.Equal(one, neighbour) {
		t.Errorf("failed %v, then %v, with another seed %v, on another core %v", one, again, other, neighbour)
	}
}
