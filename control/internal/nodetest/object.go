package nodetest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/control"
)

// End is the state of an Object, or its end.
type End string

// The ends. Other values are names of states in between, such as "connecting".
const (
	Established End = "established"
	Standby     End = "standby"
	Closed      End = "closed"
	Replaced    End = "replaced" // its socket went to another connection
)

// Counters count what an object did in one role: sockets tried or accepted,
// CLIENT_IDENT sent or read, SESSION_RECONNECT sent or read, and connect or
// accept events. Frames count when their break point is reached, so also those
// that a fault prevents.
type Counters struct {
	Sockets, Idents, Reconnects, Events int
}

func (c Counters) String() string {
	return fmt.Sprintf("(%d,%d,%d,%d)", c.Sockets, c.Idents, c.Reconnects, c.Events)
}

// Object is one connection as a Probe counts it, from its first dial or from
// the acceptance of its first socket.
type Object struct {
	Conn         *control.Conn // nil for a socket without a connection of its own
	Connect      Counters
	Accept       Counters
	Resets       int // reset events
	RemoteResets int // remote reset events
	End          End
}

// String describes the object in the form that Probe.Await compares.
func (o Object) String() string {
	return fmt.Sprintf("%s C%v A%v R(%d,%d)", o.End, o.Connect, o.Accept, o.Resets, o.RemoteResets)
}

// object is an Object under construction, guarded by the probe's lock.
type object struct {
	Object
	over bool // the socket was closed without a connection
}

func (o *object) snapshot() Object {
	s := o.Object
	switch {
	case o.End == Replaced:
	case o.Conn == nil && o.over:
		s.End = Closed
	case o.Conn == nil:
		s.End = "accepting"
	default:
		s.End = endOf(o.Conn.State())
	}
	return s
}

func endOf(s control.State) End {
	switch s {
	case control.StateReady:
		return Established
	case control.StateStandby:
		return Standby
	case control.StateClosing:
		return Closed
	}
	return End(s.String())
}

// want is a parsed line of Probe.Await.
type want struct {
	ends   []End
	counts [3][]bound // C, A, R
}

// bound is one number of a line: min to max.
type bound struct{ min, max int }

const anyNumber = int(^uint(0) >> 1)

// parseWant reads a line such as "established C(2,1,0,1) A(0,*,1+,0)". Groups
// that are missing must be 0; "closed|standby" allows both.
func parseWant(line string) (want, error) {
	w := want{counts: [3][]bound{make([]bound, 4), make([]bound, 4), make([]bound, 2)}}
	for i, word := range strings.Fields(line) {
		if i == 0 {
			for _, e := range strings.Split(word, "|") {
				w.ends = append(w.ends, End(e))
			}
			continue
		}
		at := strings.IndexByte("CAR", word[0])
		if at < 0 || !strings.HasPrefix(word[1:], "(") || !strings.HasSuffix(word, ")") {
			return w, fmt.Errorf("nodetest: %q in %q, want C(...), A(...) or R(...)", word, line)
		}
		parts := strings.Split(word[2:len(word)-1], ",")
		if len(parts) != len(w.counts[at]) {
			return w, fmt.Errorf("nodetest: %d numbers in %q, want %d", len(parts), word, len(w.counts[at]))
		}
		for j, p := range parts {
			b, err := parseBound(p)
			if err != nil {
				return w, fmt.Errorf("nodetest: %q in %q: %w", p, line, err)
			}
			w.counts[at][j] = b
		}
	}
	if len(w.ends) == 0 {
		return w, fmt.Errorf("nodetest: empty expectation")
	}
	return w, nil
}

// parseBound reads a number, "N+" for at least N, "N-M" for a range, or "*".
func parseBound(s string) (bound, error) {
	if s == "*" {
		return bound{0, anyNumber}, nil
	}
	if low, ok := strings.CutSuffix(s, "+"); ok {
		n, err := strconv.Atoi(low)
		return bound{n, anyNumber}, err
	}
	low, high, ok := strings.Cut(s, "-")
	n, err := strconv.Atoi(low)
	if err != nil || !ok {
		return bound{n, n}, err
	}
	m, err := strconv.Atoi(high)
	return bound{n, m}, err
}

func (b bound) holds(n int) bool { return n >= b.min && n <= b.max }

// counted compares the counters.
func (w want) counted(o Object) bool {
	for i, c := range [2]Counters{o.Connect, o.Accept} {
		for j, n := range [4]int{c.Sockets, c.Idents, c.Reconnects, c.Events} {
			if !w.counts[i][j].holds(n) {
				return false
			}
		}
	}
	return w.counts[2][0].holds(o.Resets) && w.counts[2][1].holds(o.RemoteResets)
}

// matches compares everything.
func (w want) matches(o Object) bool {
	for _, e := range w.ends {
		if e == o.End {
			return w.counted(o)
		}
	}
	return false
}
