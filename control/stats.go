package control

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// What can be seen of a messenger; package internal/stats has the fields, and the texts.
type (
	// Stats is a snapshot of a messenger and its cores; String is a table for people.
	Stats = stats.Stats
	// ConnStats is a snapshot of one connection; String is a table for people.
	ConnStats = stats.ConnStats
	// Snapshot is everything that can be seen of a messenger at one moment, but for the
	// cores, each of which is asked a little later than the one before.
	Snapshot = stats.Snapshot
	// Counters count for a whole messenger, ConnCounters for one connection.
	Counters     = stats.Counters
	ConnCounters = stats.ConnCounters
	// ThrottleStats is a bound of received messages that are not released yet.
	ThrottleStats = stats.ThrottleStats
	// FailureCounters and BannerCounters count failed handshakes of accepted sockets by cause,
	// PlacementCounters accepted sockets by where they arrived.
	FailureCounters   = stats.FailureCounters
	BannerCounters    = stats.BannerCounters
	PlacementCounters = stats.PlacementCounters
	// Placement says which core owns a connection, and which was meant to.
	Placement = stats.Placement
	// DoorCounters count accepted sockets that found no place among the half-open ones.
	DoorCounters = door.Counters
	// HintCounters count what became of owner hints, on both sides.
	HintCounters = steering.HintCounts
	// SteeringStats says how new connections find their core.
	SteeringStats = steering.Stats
)

// Stats takes a snapshot. It waits for the owning core's next turn: not for a
// dispatcher on a core.
func (c *Conn) Stats() (ConnStats, error) {
	io, err := c.h.Stats()
	_, held := c.h.QueuedOut()
	now := c.m.cfg.Clock.Now()
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	info := c.shown.negotiated()
	st := ConnStats{
		ID: c.id, Peer: c.s.peerText(), PeerType: c.s.Peer.Type.String(), State: c.s.State.String(), Policy: c.policy.Name, Lossy: c.s.Policy.Lossy,
		ConnectSeq: c.s.ConnectSeq, GlobalSeq: c.s.GlobalSeq,
		Placement: c.shown.placement(c.h.Core()), Counters: c.s.counters, IO: io, Protocol: info.Protocol, Compression: info.Compression,
		LastSeen: c.s.lastSeen(now, io.Quiet), Remote: info.Peer, HeldBytes: held, Throttles: c.receiving.stats(c.policy),
	}
	if s := c.s.msgr2; s != nil {
		st.ClientCookie, st.ServerCookie = s.ClientCookie != 0, s.ServerCookie != 0
	}
	if info.PeerEntity != (wire.EntityName{}) {
		st.Entity = info.PeerEntity.String()
	}
	if info.Mode != 0 {
		st.Auth, st.Mode = info.Auth.String(), info.Mode.String()
	}
	if c.shown.err != nil {
		st.Error = c.shown.err.Error()
	}
	return st, err
}

// Stats takes a snapshot. It waits for the next turn of each core. After Shutdown it
// returns the last counts of the cores, with dataplane.ErrStopped.
func (m *Messenger) Stats() (Stats, error) {
	info := m.plane.Info()
	m.mu.Lock()
	arriving := m.arriving.Load() // accepted, and not counted yet
	st := Stats{
		Name: m.cfg.Name.String(), Addrs: m.addrs.String(), Backend: string(info.Backend), Fallback: info.Fallback,
		Open: len(m.all), Standby: m.standbys.list.Len(), HalfOpen: m.halfOpen + int(arriving), InFlight: m.inFlight.Used(), InFlightLimit: m.inFlight.Limit(), Waiting: m.inFlight.Waiting(),
		Sending: m.sending.Used(), SendingLimit: m.sending.Limit(),
		Counters: m.counters,
	}
	st.Counters.Accepted += uint64(arriving)
	m.countDoor(&st.Counters)
	m.mu.Unlock()
	st.Counters.Undispatched = m.chain.dropped.Load()
	st.Counters.Hints = m.hints.Counts()
	steering, err := m.steering.Stats()
	st.Steering = steering
	if err != nil {
		return st, err
	}
	var stopped error
	for _, c := range m.plane.All() {
		cs, err := c.Stats()
		if errors.Is(err, dataplane.ErrStopped) && m.ctx.Err() == nil {
			continue // removed meanwhile, or about to be
		}
		if err != nil && !errors.Is(err, dataplane.ErrStopped) {
			return st, err
		}
		st.Cores, stopped = append(st.Cores, cs), err
	}
	return st, stopped
}
