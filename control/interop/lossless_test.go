package interop_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// trouble disturbs a session, and checks that it goes on or ends as it must.
type trouble struct {
	name string
	act  func(x *duel)
}

// allTroubles disturb the link, our messenger, and a daemon that goes on.
var allTroubles = []trouble{
	{"nothing", func(x *duel) {
		began := time.Now()
		x.send(50)
		r := x.answered()
		slow := time.Since(began) > fellowPatience // the daemon, or we, stood still: that breaks connections
		if c := r.Counters; !slow && (c.Idents != 1 || c.Reconnects != 0 || c.Ready != 1) {
			x.t.Errorf("first connection: %+v", r)
		}
		i, msgr1 := x.f.conn.Info(), x.cfg.Peer.Type == wire.AddrLegacy
		if (i.Protocol == control.Msgr1) != msgr1 || i.Auth.String() != x.c.auth || msgr1 && !i.Features.Has(wire1.FeatureMsgAuth) {
			x.t.Errorf("negotiated %+v", i)
		}
		x.says("a new session")
	}},
	{"the idle link is closed", func(x *duel) {
		for idle := false; !idle; idle = strings.Contains(x.said.String(), "going to standby") {
			x.send(1) // where the daemon was silent for too long, both stand by already, and there is no link
			x.answered()
			x.mark()
			for _, l := range x.links() {
				l.end(-1) // as our processes would
			}
			x.says("going to standby|initiating reconnect") // the latter where our ack of the answer is lost with the link
		}
		x.until("standby", func(r *fellowReport) bool { return r.State == control.StateStandby.String() })
		x.send(20)
		x.resumed()
		x.says("going to standby", "we come back")
	}},
	{"the busy link is reset", func(x *duel) {
		for range 3 {
			before := x.report()
			x.send(200)
			x.until("some answers", func(r *fellowReport) bool { return r.Answers > before.Answers })
			x.cut()
			x.send(1) // if all has been done meanwhile, both would stand by
			x.until("another connection", func(r *fellowReport) bool { return r.Counters.Ready > before.Counters.Ready })
		}
		x.resumed()
	}},
	{"the link is cut, only the daemon can dial", func(x *duel) {
		for r := x.before; r.Counters.Replaced == x.before.Counters.Replaced; r = x.answered() {
			x.there.close(false)
			x.unanswered(5) // so that there is something that it has to send again
			x.there.close(true)
			x.cut()
		}
		x.resumed()
		x.there.close(false)
		x.says("the daemon comes back")
	}},
	{"the link is a black hole", func(x *duel) {
		x.hole(true)
		x.send(20)
		x.failing()
		x.hole(false)
		x.send(20)
		x.resumed()
	}},
	{"the daemon is frozen", func(x *duel) {
		x.daemon.freeze(x.t)
		x.send(20)
		x.failing()
		x.daemon.thaw(x.t)
		x.send(20)
		x.resumed()
	}},
	{"we are frozen", func(x *duel) {
		x.send(1) // the daemon misses us where a link is up
		x.answered()
		x.send(200)
		x.frozen(func() { x.says(` idle \(`, "fault") })
		x.send(20)
		x.resumed()
	}},
	{"we are killed, and back with another nonce", func(x *duel) {
		x.kill()
		x.says("fault")
		x.cfg.Nonce++
		x.start()
		x.send(20)
		x.began()
		x.says("a new session")
		x.silent("it finds our predecessor")
	}},
	{"we are killed, and back as we were", func(x *duel) {
		x.unanswered(5)
		x.kill()
		x.says("fault")
		x.start()
		x.send(20)
		x.began()
		x.inherits(map[string]int{"lossless-peer": 5, "lossless-peer-reuse": 0})
	}},
}

// failing waits until we have lost the connection and cannot get another.
func (x *duel) failing() {
	x.t.Helper()
	x.until("attempts that fail", func(r *fellowReport) bool { return r.Counters.Attempts >= x.before.Counters.Attempts+2 })
}

// inherits checks how many answers to our predecessor at the same address we got.
// The daemon of a plain lossless peer sends them, as it makes nothing of our new
// cookie; one with the reset check finds that we are another, and drops them.
func (x *duel) inherits(n map[string]int) {
	x.t.Helper()
	if r := x.report(); r.Strange != n[x.cfg.Policy.Name] {
		x.t.Errorf("%d answers to our predecessor, want %d", r.Strange, n[x.cfg.Policy.Name])
	}
	if x.cfg.Policy.Name == "lossless-peer" {
		x.says(`found previous session|received session reset full=0`)
		x.silent("reset_session", "received session reset full=1")
	} else {
		x.says("we are another")
	}
}

var osdTroubles = append(allTroubles[:len(allTroubles):len(allTroubles)],
	trouble{"the daemon is killed, and back at another address", func(x *duel) {
		old := x.cfg.Peer
		x.daemon.kill()
		x.send(20) // to nobody
		x.failing()
		x.there.close(true) // it may have its old port again, but is not who we know
		x.daemon.restart(x.t)
		x.poll("the new address of the OSD", func() bool {
			x.cfg.Peer = x.c.clusterAddr(0)
			return x.cfg.Peer != old
		}, func() string { return x.cfg.Peer.String() })
		x.there.lead(x.cfg.Peer.AddrPort.String())
		x.fresh = true
		x.f.conn.MarkDown()
		<-x.f.conn.Closed()
		check(x.t, x.f.meet(x.cfg.Peer)) // before the session with the one that was killed finds the way there
		x.there.close(false)
		x.send(20)
		r := x.until("a new session", func(r *fellowReport) bool { return r.Answers == r.Sent-20 })
		if r.Resets+r.Remote != 0 {
			x.t.Errorf("resets: %+v", r)
		}
		x.says("a new session")
	}})

var monTroubles = append(allTroubles[:len(allTroubles):len(allTroubles)],
	trouble{"values are lost on their way, and come whole at last", func(x *duel) {
		for _, size := range []int{4 << 10, 4 << 20} {
			key, value := fmt.Sprint("value of ", size), noise(size)
			x.lose(true)
			x.ask("config-key set", key, value, nil)
			x.cut()
			x.answered()
			for _, theirs := range []bool{false, true} { // the daemon alone can dial
				x.lose(false)
				x.deliver(1, func() { x.ask("config-key get", key, nil, value) })
				x.there.close(theirs)
				x.cut()
				x.answered()
				x.there.close(false)
			}
		}
		x.resumed()
	}},
	trouble{"the daemon is killed, and back as it was", func(x *duel) {
		x.daemon.kill()
		x.send(20) // for the session that is gone
		x.failing()
		x.fresh = true
		x.daemon.restart(x.t)
		x.until("a remote reset", func(r *fellowReport) bool { return r.Remote > 0 })
		x.send(20)
		r := x.until("a new session", func(r *fellowReport) bool { return r.Answers == r.Sent-20 })
		if r.Resets != 0 || r.Remote != 1 {
			x.t.Errorf("resets: %+v", r)
		}
		x.says("it knows no session", "a new session")
	}})

// A real OSD and a real monitor, each as a lossless peer of a messenger of ours, by msgr2 and by msgr1, where all messages are signed
// with cephx. All messages arrive exactly once and in order, in both directions, as long as
// both live; the logs say that the daemons see it as we do.
// Matrix: IN-02, V1-06
func TestRealDaemonsKeepTheirSessionsWithUs(t *testing.T) {
	enabled(t)
	t.Parallel()
	for _, backend := range backends {
		t.Run("osd/"+string(backend), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterConfig{auth: "none", mode: "crc", osds: 1})
			fight(t, c, c.osds[0], control.LosslessPeer(), c.clusterAddr(0), backend, osdTroubles)
		})
		for _, as := range []struct {
			auth string
			typ  wire.AddrType
		}{{"cephx", wire.AddrMsgr2}, {"none", wire.AddrLegacy}, {"cephx", wire.AddrLegacy}} {
			t.Run(fmt.Sprintf("mon/%v/%s/%s", as.typ, as.auth, backend), func(t *testing.T) {
				t.Parallel()
				c := startCluster(t, clusterConfig{auth: as.auth, mode: "crc"})
				at := slices.IndexFunc(c.monAddr, func(a wire.Addr) bool { return a.Type == as.typ })
				fight(t, c, c.mons[0], control.LosslessPeerReuse(), c.monAddr[at], backend, monTroubles)
			})
		}
	}
}

// fight disturbs one session by all troubles, one after the other.
func fight(t *testing.T, c *cluster, d *daemon, policy control.Policy, peer wire.Addr, backend uring.Backend, all []trouble) {
	d.set(t, "ms_connection_idle_timeout", idleLimit)
	d.set(t, "ms_max_backoff", "1")
	l := c.watchLogs(t)
	x := newDuel(t, c, d, policy, peer, backend)
	for _, tr := range all {
		ok := t.Run(strings.ReplaceAll(tr.name, " ", "-"), func(t *testing.T) {
			x.t = t
			t.Cleanup(func() { _ = x.daemon.cmd.Process.Signal(syscall.SIGCONT) }) // it may have ended
			tr.act(x)
			found := l.complaints(t)
			if strings.Contains(tr.name, "daemon is killed") {
				found = sessions(found) // it has more to say when it starts
			}
			wantNone(t, found)
			x.mark() // for the next trouble; the first one sees all since our start, as we connect at once
		})
		if !ok {
			return // what follows builds on it
		}
	}
	t.Logf("%+v", x.report())
}
