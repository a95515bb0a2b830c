package control

import (
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
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
