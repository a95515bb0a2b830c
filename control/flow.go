package control

import (
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Flow control for one connection. What its user keeps of received messages counts
// against three bounds: that of the messenger (Config.DispatchBytes), those of its
// policy, and its own (Config.ConnBytes), so that one user who keeps much stops its
// own peer before it stops the others. Pause stops a peer at once.

// receiving is what stops a connection from reading: the bounds that it shares with
// others, and a file without room.
type receiving struct {
	limits dataplane.Throttles
	// waitsFor is the file whose room resumes the connection (File.Hold); nil: none.
	waitsFor atomic.Pointer[File]
}

// Pause stops reading from the peer, over reconnects too, until Resume: the peer's
// queue fills, and its keepalives are not missed. The core may dispatch a message
// that is on its way. Acks of the peer are not read either: on a lossless connection
// what we send stays in our queue. The pause is in Stats (IO.Paused). It has no effect
// on the connection to ourselves. Any goroutine; it does not wait.
func (c *Conn) Pause() {
	if !c.local {
		c.h.Pause()
	}
}

// Resume lets a connection go on that Pause, or Config.Probe in the data phase, has
// stopped. Any goroutine; it does not wait.
func (c *Conn) Resume() { c.h.Resume() }

// bound sets the bounds of a new connection; all is that of the messenger. A policy that
// bounds the bytes of all its connections takes the place of the bound of one.
func (r *receiving) bound(p *Policy, cfg *Config, all *dataplane.Throttle) {
	t := &r.limits
	t.Frames, t.Bytes, t.Shared, t.Share = p.Messages, p.Bytes, all, own(cfg.DispatchBytes, ownDispatch)
	if t.Bytes == nil && cfg.ConnBytes > 0 {
		t.Bytes = dataplane.NewThrottle(cfg.ConnBytes)
	}
}

// stats are the bounds that hold for a connection of policy p.
func (r *receiving) stats(p *Policy) []ThrottleStats {
	list := throttleStats(&r.limits)
	for i := range list {
		if list[i].Of == "bytes" && p.Bytes == nil {
			list[i].Of = "connection"
		}
	}
	return list
}

// throttleStats are the throttles of a connection, those without a limit left
// out.
func throttleStats(t *dataplane.Throttles) (list []ThrottleStats) {
	for _, one := range []struct {
		of string
		t  *dataplane.Throttle
	}{{"messages", t.Frames}, {"bytes", t.Bytes}, {"dispatch", t.Shared}} {
		if one.t != nil && one.t.Limit() > 0 {
			list = append(list, ThrottleStats{Of: one.of, Used: one.t.Used(), Limit: one.t.Limit(), Waiting: one.t.Waiting()})
		}
	}
	return list
}
