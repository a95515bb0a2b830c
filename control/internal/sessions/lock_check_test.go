//go:build invariants || race

package sessions

import (
	"context"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// broken runs f and returns what the check says about it.
func broken(f func()) (says string) {
	defer func() { says, _ = recover().(string) }()
	f()
	return ""
}

func TestTheLockIsCheckedToKeepItsPromise(t *testing.T) {
	m := idle(t, func(c *Config) { c.Probe = probe.Func(func(context.Context, probe.Event) error { return nil }) })
	p := losslessPeer()
	m.lock()
	c := m.newConnLocked(m.pickCore(), p, m.newSession(p, session.Peer{Target: nobody(1)}), false)
	m.unlock()
	locked := func(f func()) func() {
		return func() {
			m.lock()
			defer m.unlock()
			f()
		}
	}
	for _, one := range []struct {
		what, says string
		do         func()
	}{
		{"a log entry", "held over a log handler", locked(func() { m.cfg.Logger.Info("x") })},
		{"a dispatch", "held over a callback of a core", locked(m.mu.Check.EnterCore)},
		{"an action", "held over the actions of a connection", locked(func() { c.out.LetGo() })},
		{"a random number", "held over the source of random numbers", locked(func() { m.random.next() })},
		{"steering", "held over a system call", locked(func() { m.steering.Migrates() })},
		{"a frame of the data phase", "held over a callback of a core", locked(func() { _ = m.cfg.Probe.At(t.Context(), probe.Event{When: probe.Data}) })},
		{"a step of a handshake", "held over a call of the probe", locked(func() { _ = m.cfg.Probe.At(t.Context(), probe.Event{}) })},
		{"a second time", "taken twice", locked(func() { m.lock() })},
		{"on a core", "a core takes the lock of sessions", func() {
			m.mu.Check.EnterCore()
			m.Conns()
		}},
	} {
		if says := broken(one.do); !strings.Contains(says, one.says) {
			t.Errorf("%s under the lock: %q", one.what, says)
		}
		m.mu.Check.LeaveCore()
	}
	says := broken(func() {
		m.mu.Check.EnterCore()
		defer m.mu.Check.LeaveCore()
		c.MarkDown()
		_, _, _, _ = c.State(), c.Err(), c.Info(), m.Addrs()
		m.Lookup(nobody(1))
		if _, err := m.Connect(nobody(2), wire.OSD, &ConnectOptions{Policy: p}); err != nil { // makes one
			t.Error(err)
		}
	})
	if says != "" {
		t.Errorf("what a dispatcher may call: %s", says)
	}
}

// Whatever runs on a core is checked, not only what calls a dispatcher.
func TestACoreThatTakesTheLockIsFoundAnywhere(t *testing.T) {
	m := idle(t, nil)
	says := make(chan string)
	must(t, m.plane.Core(0).Do(func(*loop.Core) { says <- broken(func() { m.Conns() }) }))
	if got := <-says; !strings.Contains(got, "a core takes the lock of sessions") {
		t.Errorf("%q", got)
	}
}
