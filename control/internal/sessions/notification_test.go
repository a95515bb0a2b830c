package sessions

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// A session on which nothing moves is of use if it lives for as long as the
// longest pause: it is dialled at once, as often as that. One that lives for less
// is dialled at once the first time only.
func TestASessionThatLivesLongIsOfUse(t *testing.T) {
	m := newManager(t, nil)
	m.lock()
	defer m.unlock()
	p := losslessClient()
	c := m.newConnLocked(m.pickCore(), p, m.newSession(p, session.Peer{Target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("192.0.2.1:6800")}}), false)
	for i, one := range []struct {
		lived time.Duration
		want  session.State
	}{
		{time.Minute, session.Connecting}, {time.Minute, session.Connecting}, {0, session.Connecting}, {time.Minute, session.Connecting},
		{time.Minute - 1, session.Connecting}, {time.Minute - 1, session.Wait},
	} {
		c.s.State, c.s.opened = session.Ready, time.Unix(1000, 0)
		n := uint64(i + 1)
		c.s.notifiedLocked(notification{
			conn: c, n: n, kind: notifyFault, err: errors.New("broken"), at: c.s.opened.Add(one.lived), snapshot: dataplane.Snapshot{Notifications: n},
		})
		if c.s.State != one.want {
			t.Errorf("loss %d, lived for %v: state %v, want %v", n, one.lived, c.s.State, one.want)
		}
	}
}

// A fault of an earlier socket can be heard of when the session has the next one
// already: it is no fault of that, and what was received since is not forgotten.
func TestAFaultOfAnEarlierSocketIsNone(t *testing.T) {
	m := newManager(t, nil)
	m.lock()
	defer m.unlock()
	p := losslessPeer()
	c := m.newConnLocked(m.pickCore(), p, m.newSession(p, session.Peer{Target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("192.0.2.1:6800")}}), false)
	c.s.State = session.Connecting
	c.s.stepLocked(session.Authenticated{IO: session.Snapshot{InSeq: 10, Notifications: 3}}) // its handler has told three times
	c.s.State = session.Ready
	for n := uint64(1); n <= 3; n++ {
		c.s.notifiedLocked(notification{conn: c, n: n, kind: notifyFault, err: errors.New("broken"), snapshot: dataplane.Snapshot{InSeq: 5, Notifications: n}})
	}
	if c.s.State != session.Ready || c.s.IO.InSeq != 10 {
		t.Errorf("state %v, received up to %d", c.s.State, c.s.IO.InSeq)
	}
	c.s.notifiedLocked(notification{conn: c, n: 4, kind: notifyFault, err: errors.New("broken"), snapshot: dataplane.Snapshot{InSeq: 12, Notifications: 4}})
	if c.s.State == session.Ready || c.s.IO.InSeq != 12 {
		t.Errorf("behind its own fault: state %v, received up to %d", c.s.State, c.s.IO.InSeq)
	}
}
