package control_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// sweep is a duet whose sockets break on one side.
type sweep struct {
	pairing
	role msgrtest.Role
	b    brittle
	v    variant
	size int // of the front of every message
}

func (s *sweep) name() string {
	return title(s.connector+"-"+s.acceptor, s.role, s.size, string(s.b.call)+fmt.Sprint(s.b.nth), s.b.bytes, s.v)
}

// run moves some messages in both directions, and checks what arrived. It
// returns how many calls there were, and how many bytes came in.
func (s *sweep) run(t *testing.T) (calls, bytes int64) {
	w := &duet{t: t, ctx: deadline(t), lossy: s.lossy(), v: s.v, size: s.size}
	var change [2]func(*msgrtest.NodeConfig)
	change[s.role], change[1-s.role] = s.b.on(s.v), func(*msgrtest.NodeConfig) {}
	w.acceptor = nodeOf(t, s.v, "osd.1", s.acceptor, 3, withChain(echoer()), change[msgrtest.Acceptor])
	w.connector = nodeOf(t, s.v, connectorName(s.connector), s.connector, 2, change[msgrtest.Connector])
	w.dial()
	for tid := range uint64(3) {
		w.say(tid + 2)
		eventually(t, w.ctx, "the answer, or the end", func() bool {
			return w.conn.State() == control.StateClosing || slices.Contains(w.connector.Inbox.TIDs(), tid+1002)
		})
	}
	if s.lossy() {
		w.intact()
		w.atMostOnce(w.acceptor.Inbox.TIDs(), w.sent)
		w.atMostOnce(w.connector.Inbox.TIDs(), echoes(w.sent))
		if over := w.conn.State() == control.StateClosing; over && w.connector.Probe.Objects()[0].Resets != 1 {
			eventually(t, w.ctx, "the reset event", func() bool { return w.connector.Probe.Objects()[0].Resets == 1 })
		}
	} else {
		w.finish()
	}
	return s.b.calls.Load(), s.b.in.Load()
}

// TestTheNthSocketCallFails is FT-27: each socket call of a run fails, in a run
// of its own, until a run ends without reaching it.
func TestTheNthSocketCallFails(t *testing.T) { nthSocketCallFails(t, allVariants, len(variants), 11) }

// nthSocketCallFails has each line in so many of the variants.
func nthSocketCallFails(t *testing.T, list []variant, each, stride int) {
	msgrtest.CheckLeaks(t)
	var lines []*sweep
	for _, p := range pairings {
		for _, role := range []msgrtest.Role{msgrtest.Connector, msgrtest.Acceptor} {
			for _, call := range []socketCall{aWrite, aRead, anAccept, aConnect} {
				if call == aConnect && role == msgrtest.Acceptor || call == anAccept && role == msgrtest.Connector {
					continue // an acceptor may dial, but need not
				}
				for range each {
					lines = append(lines, &sweep{pairing: p, role: role, b: brittle{call: call}, v: list[len(lines)%len(list)]})
				}
			}
		}
	}
	lines = sampleOf(t, lines, stride)
	name := func(i int) string { return lines[i].name() }
	spread(t, 16, len(lines), name, func(t *testing.T, i int) {
		for n := int64(1); ; n++ {
			s := sweep{pairing: lines[i].pairing, role: lines[i].role, v: lines[i].v, b: brittle{call: lines[i].b.call, nth: n}}
			ok := t.Run(title(n), func(t *testing.T) { s.run(t) })
			if !ok || !s.b.broken.Load() {
				if n == 1 {
					t.Error("there was no such call at all")
				}
				return
			}
		}
	})
}

// TestAConnectionIsCutAtEveryByte is FT-30: messages of many sizes, and a
// fault when so many bytes have come in.
func TestAConnectionIsCutAtEveryByte(t *testing.T) { cutAtEveryByte(t, allVariants, 7) }

func cutAtEveryByte(t *testing.T, list []variant, stride int) {
	msgrtest.CheckLeaks(t)
	var whole []*sweep
	for _, p := range pairings {
		for _, role := range []msgrtest.Role{msgrtest.Connector, msgrtest.Acceptor} {
			for _, size := range []int{0, 1, 100, 4095, 70_000, 1 << 20} {
				v := list[len(whole)*7%len(list)]
				whole = append(whole, &sweep{pairing: p, role: role, v: v, size: size, b: brittle{bytes: unlimited}})
			}
		}
	}
	var lines []*sweep
	for _, w := range sampleOf(t, whole, stride) {
		var total int64
		if !t.Run(w.name(), func(t *testing.T) { _, total = w.run(t) }) {
			return
		}
		for i := range int64(cuts) {
			at := 1 + total*i/cuts + i*i%7
			lines = append(lines, &sweep{pairing: w.pairing, role: w.role, v: w.v, size: w.size, b: brittle{bytes: at}})
		}
	}
	lines = sampleAt(t, lines, stride, seedOfSample(t)/uint64(stride)) // so that stride squared runs meet all
	spread(t, 16, len(lines), func(i int) string { return lines[i].name() }, func(t *testing.T, i int) { lines[i].run(t) })
}

// cuts is how many places of a run are tried.
const cuts = 60
