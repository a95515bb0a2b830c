package control

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// newDoor is the door of a messenger of this configuration.
func newDoor(c *Config) *door.Door {
	d := door.Shares(c.HalfOpen)
	d.Bytes = c.HalfOpenBytes
	d.Rate = c.doorRate()
	return door.New(d)
}

// longestWait is how long an accepted socket waits for its handshake to begin.
const longestWait = 2 * time.Second

// doorRate is what c, with its defaults filled in, says about connections that come
// to nothing. As many wait as may begin in longestWait.
func (c *Config) doorRate() door.Rate {
	return door.Rate{
		PerSecond: c.FailureRate, Burst: c.FailureBurst, Clock: c.Clock, Kept: c.HalfOpen,
		Line: max(c.FailureRate*int(longestWait/time.Second), 8), Longest: longestWait,
	}
}

// admit decides, on the core, whether an accepted socket may become half open.
// One that may not is closed before a goroutine or a buffer is spent on it.
func (m *Messenger) admit(link *dataplane.Link, now time.Time) *door.Guest {
	guest, cause := m.door.Admit(link.PeerAddr().Addr(), now)
	if guest == nil {
		link.Refuse()
		m.lines.WarnAside("accepted socket refused: "+cause.String(), "peer", link.PeerAddr())
		return nil
	}
	link.ReadAhead(readAhead)
	return guest
}

// countDoor adds what the door has counted: sockets that it refused were
// accepted, too.
func (m *Messenger) countDoor(n *Counters) {
	n.Door = m.door.Counters()
	refused := n.Door.OverAll + n.Door.Source + n.Door.Prefix + n.Door.Rate
	n.Accepted += refused
	n.Refused += refused
}

// readAhead is what an accepted link reads beyond what its handshake asks for, in
// bytes: two or three frames of a real one.
const readAhead = 4 << 10

// room has the door count what a handshake keeps.
func (a *accepting) room(n int) error {
	if !a.guest.Hold(n) {
		return fmt.Errorf("%w: half-open connections hold %d bytes (HalfOpenBytes)", handshake.ErrNoRoom, a.m.cfg.HalfOpenBytes)
	}
	return nil
}

// steps is an accepted link that reports the progress of its handshake.
type steps struct {
	*dataplane.Link
	a *accepting
}

// leastStep is the least that a step of the handshake reads, in bytes. The
// prefix of the banner is read in smaller parts, which are no progress: else a
// first byte would be enough to keep a place.
const leastStep = 8

// ReadFull implements handshake.Link.
func (s steps) ReadFull(ctx context.Context, p []byte) error {
	err := s.Link.ReadFull(ctx, p)
	if err == nil && len(p) >= leastStep {
		s.a.guest.Progress(s.a.m.cfg.Clock.Now())
	}
	return err
}

// cameToNothing has the door count that the last socket of a connection was of no use,
// if it was accepted. The lock is held.
func (m *Messenger) cameToNothing(last *Info, now time.Time) {
	if last == nil || !last.Accepted {
		return
	}
	if from, err := netip.ParseAddrPort(last.Peer); err == nil {
		m.door.CameToNothing(from.Addr(), now)
	}
}
