package stats

import (
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Counters count for a whole messenger.
type Counters struct {
	Conns              uint64 `json:"conns"`           // connection objects made
	Closed             uint64 `json:"closed"`          // of these, over
	Accepted           uint64 `json:"accepted"`        // sockets
	AcceptFailures     uint64 `json:"accept_failures"` // handshakes of accepted sockets that failed
	AuthFailures       uint64 `json:"auth_failures"`   // of these, because of the authentication
	Expired            uint64 `json:"expired"`         // connections whose peer did not come back
	Refused            uint64 `json:"refused"`         // accepted sockets that found no place among the half-open ones
	WaitsSent          uint64 `json:"waits_sent"`
	RetriesSent        uint64 `json:"retries_sent"`
	ResetsSent         uint64 `json:"resets_sent"`
	PartialResetsSent  uint64 `json:"partial_resets_sent"` // of these, those that leave the peer its queue
	IllegalTransitions uint64 `json:"illegal_transitions"` // our own bugs: always 0
	Undispatched       uint64 `json:"undispatched"`        // messages that no dispatcher took

	Failures   FailureCounters     `json:"failures"`    // accept_failures by cause
	Door       door.Counters       `json:"door"`        // accepted sockets that were refused, by cause, and evicted
	BadBanners BannerCounters      `json:"bad_banners"` // accepted sockets that speak something else
	Hints      steering.HintCounts `json:"hints"`
	Placement  PlacementCounters   `json:"placement"`
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
	Of      string `json:"of"`      // "messages" or "bytes" of the policy, "connection" bytes, "dispatch" bytes of the messenger
	Used    int64  `json:"used"`    // now
	Limit   int64  `json:"limit"`   // 0: none
	Waiting int64  `json:"waiting"` // connections that do not read because of it
}

// ConnStats is a snapshot of one connection.
type ConnStats struct {
	ID           uint64 `json:"id"`
	Peer         string `json:"peer"`
	Entity       string `json:"entity,omitempty"` // name of the peer, as it authenticated itself to us
	Remote       string `json:"remote,omitempty"` // the other end of its last TCP connection
	PeerType     string `json:"peer_type"`
	State        string `json:"state"`
	Policy       string `json:"policy"`
	Lossy        bool   `json:"lossy"` // as the acceptor decided
	Protocol     string `json:"protocol,omitempty"`
	Auth         string `json:"auth,omitempty"`
	Mode         string `json:"mode,omitempty"`
	Compression  string `json:"compression,omitempty"`
	ConnectSeq   uint64 `json:"connect_seq"`
	GlobalSeq    uint64 `json:"global_seq"`
	ClientCookie bool   `json:"client_cookie"` // known; never its value
	ServerCookie bool   `json:"server_cookie"`
	Error        string `json:"error,omitempty"`
	// LastSeen is when the peer was heard last, as far as it is known: without a
	// socket, when the last one was lost. Zero: never.
	LastSeen time.Time `json:"last_seen,omitzero"`
	// Unanswered is since when it dials without an answer. Zero: it does not, or was answered.
	Unanswered time.Time `json:"unanswered,omitzero"`
	// HeldBytes is the payload of all messages that wait to be sent or
	// acknowledged; their numbers are IO.Queued and IO.Sent.
	HeldBytes int64           `json:"held_bytes"`
	Throttles []ThrottleStats `json:"throttles,omitempty"`
	// ThrottledFor is how long received messages that are not released have stopped it from
	// reading; 0: it reads, or stands still for another reason.
	ThrottledFor time.Duration          `json:"throttled_for_ns"`
	Placement    Placement              `json:"placement"`
	Counters     ConnCounters           `json:"counters"`
	IO           dataplane.HandlerStats `json:"io"`
}

// Stats is a snapshot of a messenger and its cores.
type Stats struct {
	Name     string `json:"name"`
	Addrs    string `json:"addrs"`
	Backend  string `json:"backend"`
	Fallback string `json:"fallback,omitempty"` // why not io_uring
	Open     int    `json:"open"`               // connections now
	Standby  int    `json:"standby"`            // of these, sessions that wait for their peer, and end if it does not come
	HalfOpen int    `json:"half_open"`          // handshakes of accepted sockets now
	// Unanswered are the connections that dial without an answer, and UnansweredSeconds is for
	// how long the first of them does.
	Unanswered        int   `json:"unanswered"`
	UnansweredSeconds int   `json:"unanswered_seconds"`
	InFlight          int64 `json:"in_flight"` // received payload bytes not released
	// InFlightLimit bounds InFlight, 0 if nothing does; Waiting are the
	// connections that do not read because of it.
	InFlightLimit int64 `json:"in_flight_limit"`
	// Sending is what all connections hold for sending, in bytes of payload;
	// SendingLimit bounds it, 0 if nothing does.
	Sending      int64 `json:"sending"`
	SendingLimit int64 `json:"sending_limit"`
	Waiting      int64 `json:"waiting"`
	// ThrottledConns do not read because of received messages that are not released, by
	// whatever bound; ThrottledFor is how long the first of them has not.
	ThrottledConns int                   `json:"throttled_conns"`
	ThrottledFor   time.Duration         `json:"throttled_for_ns"`
	Steering       steering.Stats        `json:"steering"`
	Counters       Counters              `json:"counters"`
	Cores          []dataplane.CoreStats `json:"cores"`
}

// Latency is that of all cores together.
func (st *Stats) Latency() (all dataplane.Latencies) {
	for i := range st.Cores {
		all.Merge(&st.Cores[i].Latency)
	}
	return all
}

// Snapshot is everything that can be seen of a messenger at one moment, but for
// the cores, each of which is asked a little later than the one before.
type Snapshot struct {
	Time      time.Time   `json:"time"`
	PID       int         `json:"pid"`
	Messenger Stats       `json:"messenger"`
	Conns     []ConnStats `json:"conns"` // oldest first
}

// WriteText writes what String returns.
func (s *Snapshot) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, s.String())
	return err
}

// Placement says which core owns a connection, and which was meant to.
type Placement struct {
	Core     int `json:"core"`
	Intended int `json:"intended"`
	// By names what chose the intended core: for a connection that we made
	// "least-loaded", "given" or "same-core"; for one that we accepted
	// "table", "hint", "cpu" or "hash", and "session" if it had an owner
	// before; "moved" if the core that it was on was removed or failed.
	By string `json:"by"`
	// Reason is why Core is not Intended; empty if it is.
	Reason string `json:"reason,omitempty"`
}

// What chooses the core of a connection that we make.
const (
	ByLoad = "least-loaded"
	ByUser = "given"
)

// ByMove is what chooses a core in place of one that is gone.
const ByMove = "moved"

// PlacementCounters count accepted sockets by where they arrived.
type PlacementCounters struct {
	Intended  uint64 `json:"intended"`  // at the core that was meant
	Unsteered uint64 `json:"unsteered"` // at another one, as the rest: by reason
	NoHint    uint64 `json:"no_hint"`
	OtherHint uint64 `json:"other_hint"`
	Missed    uint64 `json:"missed"`
}

// CountPlacement counts an accepted socket by where it arrived.
func CountPlacement(n *PlacementCounters, p Placement) {
	switch p.Reason {
	case "":
		n.Intended++
	case steering.Unsteered:
		n.Unsteered++
	case steering.NoHint:
		n.NoHint++
	case steering.OtherHint:
		n.OtherHint++
	case steering.Missed:
		n.Missed++
	}
}
