//go:build invariants || race

package control_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The predecessor takes its lock when it begins, for the offer, for the handshakes under
// way, when the sessions freeze, two times for each session, when it looks once more,
// and at the end. The successor takes it when it starts, for the sessions, and when
// they go on. Nobody comes back meanwhile, so nothing else takes it.
func TestAHandOverTakesTheMessengersLockEightAndThreeTimes(t *testing.T) {
	old, err := control.New(serverConfig(uring.Epoll, 1))
	must(t, err)
	must(t, old.Start(echoAll()))
	addrs, err := old.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	s := newStream(t, uring.Epoll, wire.MDS, control.LosslessClient(), addrs[0])
	s.end()
	must(t, s.m.Shutdown(deadline(t)))
	session := old.Conns()[0]
	eventually(t, deadline(t), "the wait for its peer", func() bool { return session.State() == control.StateStandby })

	ours, theirs := unixPair(t)
	type result struct {
		m   *control.Messenger
		err error
	}
	taken := make(chan result, 1)
	go func() {
		m, err := control.TakeOver(context.Background(), serverConfig(uring.Epoll, 1), theirs, echoAll())
		taken <- result{m, err}
	}()
	before := old.LocksTaken()
	must(t, old.HandOver(deadline(t), ours))
	if n := old.LocksTaken() - before - 1; n > 8 {
		t.Errorf("the predecessor took the lock %d times, want at most 8", n)
	}
	next := <-taken
	must(t, next.err)
	if n := next.m.LocksTaken(); n > 3 {
		t.Errorf("the successor took the lock %d times, want at most 3", n)
	}
	if n := len(next.m.Conns()); n != 1 {
		t.Errorf("%d sessions were handed over", n)
	}
	if st, err := next.m.Stats(); err != nil || st.Standby != 1 {
		t.Errorf("%d sessions wait for their peer, %v", st.Standby, err)
	}
	end(t, next.m)
	end(t, old)
}
