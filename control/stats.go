package control

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Counters count for a whole messenger.
type Counters struct {
	Conns              uint64 `json:"conns"`           // connection objects made
	Closed             uint64 `json:"closed"`          // of these, over
	Accepted           uint64 `json:"accepted"`        // sockets
	AcceptFailures     uint64 `json:"accept_failures"` // handshakes of accepted sockets that failed
	AuthFailures       uint64 `json:"auth_failures"`   // of these, because of the authentication
	Refused            uint64 `json:"refused"`         // accepted sockets over the half-open bound
	WaitsSent          uint64 `json:"waits_sent"`
	RetriesSent        uint64 `json:"retries_sent"`
	ResetsSent         uint64 `json:"resets_sent"`
	PartialResetsSent  uint64 `json:"partial_resets_sent"` // of these, those that leave the peer its queue
	IllegalTransitions uint64 `json:"illegal_transitions"` // our own bugs: always 0
	Undispatched       uint64 `json:"undispatched"`        // messages that no dispatcher took

	Hints     HintCounters      `json:"hints"`
	Placement PlacementCounters `json:"placement"`
}

// ConnCounters count for one connection.
type ConnCounters struct {
	Attempts     uint64 `json:"attempts"`   // dials
	Idents       uint64 `json:"idents"`     // CLIENT_IDENT sent
	Reconnects   uint64 `json:"reconnects"` // SESSION_RECONNECT sent
	Retries      uint64 `json:"retries"`    // SESSION_RETRY and RETRY_GLOBAL received
	Hinted       uint64 `json:"hinted"`     // TCP connections from a port that names the peer's owner core
	Replaced     uint64 `json:"replaced"`   // accepted sockets that took it over
	Ready        uint64 `json:"ready"`      // times that it became ready
	Faults       uint64 `json:"faults"`
	AuthFailures uint64 `json:"auth_failures"` // of these, because of the authentication
	Resets       uint64 `json:"resets"`        // reset events
	RemoteResets uint64 `json:"remote_resets"` // remote reset events
}

// ThrottleStats is a bound of received messages that are not released yet, over
// all connections that share it.
type ThrottleStats struct {
	Of      string `json:"of"`      // "messages" or "bytes" of the policy, "dispatch" bytes of the messenger
	Used    int64  `json:"used"`    // now
	Limit   int64  `json:"limit"`   // 0: none
	Waiting int64  `json:"waiting"` // connections that do not read because of it
}

// throttleStats are the throttles of a connection, those without a limit left
// out.
func throttleStats(t *dataplane.Throttles) (list []ThrottleStats) {
	for _, one := range []struct {
		of string
		t  *dataplane.Throttle
	}{{"messages", t.Messages}, {"bytes", t.Bytes}, {"dispatch", t.Dispatch}} {
		if one.t != nil && one.t.Limit() > 0 {
			list = append(list, ThrottleStats{Of: one.of, Used: one.t.Used(), Limit: one.t.Limit(), Waiting: one.t.Waiting()})
		}
	}
	return list
}

// ConnStats is a snapshot of one connection.
type ConnStats struct {
	ID           uint64 `json:"id"`
	Peer         string `json:"peer"`
	PeerType     string `json:"peer_type"`
	State        string `json:"state"`
	Policy       string `json:"policy"`
	Protocol     string `json:"protocol,omitempty"`
	Auth         string `json:"auth,omitempty"`
	Mode         string `json:"mode,omitempty"`
	Compression  string `json:"compression,omitempty"`
	ConnectSeq   uint64 `json:"connect_seq"`
	GlobalSeq    uint64 `json:"global_seq"`
	ClientCookie bool   `json:"client_cookie"` // known; never its value
	ServerCookie bool   `json:"server_cookie"`
	Error        string `json:"error,omitempty"`
	// HeldBytes is the payload of all messages that wait to be sent or
	// acknowledged; their numbers are IO.Queued and IO.Sent.
	HeldBytes int64                  `json:"held_bytes"`
	Throttles []ThrottleStats        `json:"throttles,omitempty"`
	Placement Placement              `json:"placement"`
	Counters  ConnCounters           `json:"counters"`
	IO        dataplane.HandlerStats `json:"io"`
}

// Stats takes a snapshot. It waits for the owning core's next turn: not for a
// dispatcher on a core.
func (c *Conn) Stats() (ConnStats, error) {
	io, err := c.h.Stats()
	_, held := c.h.QueuedOut()
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	st := ConnStats{
		ID: c.id, Peer: c.peerText(), PeerType: c.peerType.String(), State: c.state.String(), Policy: c.policy.Name,
		ConnectSeq: c.connectSeq, GlobalSeq: c.globalSeq, ClientCookie: c.clientCookie != 0, ServerCookie: c.serverCookie != 0,
		Placement: c.placement(), Counters: c.counters, IO: io, Protocol: c.info.Protocol, Compression: c.info.Compression,
		HeldBytes: held, Throttles: throttleStats(&c.limits),
	}
	if c.info.Mode != 0 {
		st.Auth, st.Mode = c.info.Auth.String(), c.info.Mode.String()
	}
	if c.err != nil {
		st.Error = c.err.Error()
	}
	return st, err
}

// Stats is a snapshot of a messenger and its cores.
type Stats struct {
	Name     string `json:"name"`
	Addrs    string `json:"addrs"`
	Backend  string `json:"backend"`
	Fallback string `json:"fallback,omitempty"` // why not io_uring
	Open     int    `json:"open"`               // connections now
	HalfOpen int    `json:"half_open"`          // handshakes of accepted sockets now
	InFlight int64  `json:"in_flight"`          // received payload bytes not released
	// InFlightLimit bounds InFlight, 0 if nothing does; Waiting are the
	// connections that do not read because of it.
	InFlightLimit int64                 `json:"in_flight_limit"`
	Waiting       int64                 `json:"waiting"`
	Steering      SteeringStats         `json:"steering"`
	Counters      Counters              `json:"counters"`
	Cores         []dataplane.CoreStats `json:"cores"`
}

// Stats takes a snapshot. It waits for the next turn of each core.
func (m *Messenger) Stats() (Stats, error) {
	info := m.plane.Info()
	m.mu.Lock()
	st := Stats{
		Name: m.cfg.Name.String(), Addrs: m.addrs.String(), Backend: string(info.Backend), Fallback: info.Fallback,
		Open: len(m.all), HalfOpen: m.halfOpen + int(m.arriving.Load()), InFlight: m.inFlight.Used(), InFlightLimit: m.inFlight.Limit(), Waiting: m.inFlight.Waiting(),
		Counters: m.counters,
	}
	st.Counters.Undispatched = m.dropped.Load()
	steering, err := m.steeringStats()
	m.mu.Unlock()
	st.Steering = steering
	if err != nil {
		return st, err
	}
	for _, c := range m.plane.All() {
		cs, err := c.Stats()
		if errors.Is(err, dataplane.ErrStopped) && m.ctx.Err() == nil {
			continue // removed meanwhile, or as good as that
		}
		if err != nil {
			return st, err
		}
		st.Cores = append(st.Cores, cs)
	}
	return st, nil
}
