package control

import (
	"maps"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Bound is one bound that a messenger keeps, whatever its peers do.
type Bound struct {
	// Name is the field of Config that sets it, such as QueueBytes or
	// Limits.Data. Behind it stands " (share)", " (reserve)", " (source)" or
	// " (prefix)" if the bound is a part of that field. What begins with a package is its constant.
	Name string `json:"name"`
	// Value is in units of Unit; 0: there is no bound.
	Value int64 `json:"value"`
	Unit  Unit  `json:"unit"`
	// Per is what has the bound for itself: "messenger", "connection" and so on.
	Per string `json:"per"`
	// Of is what is bounded, in a few words.
	Of string `json:"of"`
}

// Unit is what the value of a Bound counts.
type Unit string

// The units of bounds.
const (
	UnitBytes       Unit = "bytes"
	UnitRate        Unit = "bytes/s" // at least, not at most
	UnitNanoseconds Unit = "ns"
	UnitMessages    Unit = "messages"
	UnitCalls       Unit = "calls"
	UnitPostings    Unit = "postings"
	UnitConnections Unit = "connections"
	UnitPeers       Unit = "peers"
	UnitPerSecond   Unit = "1/s"
	UnitLines       Unit = "lines"
)

// Bounds are the bounds that a messenger of this configuration keeps, defaults
// filled in, in the order in which a peer meets them. Throttles say what they
// are set to now. The configuration is not checked.
func (c Config) Bounds() []Bound {
	c = c.withDefaults()
	list := c.handshakeBounds()
	list = append(list, c.receiveBounds()...)
	list = append(list, c.sendBounds()...)
	list = append(list, c.fileBounds()...)
	return append(list, c.otherBounds()...)
}

// handshakeBounds hold before a peer has proved anything.
func (c *Config) handshakeBounds() []Bound {
	before, shares := frame.PreAuthLimits(), door.Shares(c.HalfOpen)
	return []Bound{
		{"HalfOpen", int64(c.HalfOpen), UnitConnections, "messenger", "handshakes of accepted connections under way"},
		{"HalfOpen (source)", int64(shares.PerSource), UnitConnections, "source", "the same, once half of HalfOpen is in use"},
		{"HalfOpen (prefix)", int64(shares.PerPrefix), UnitConnections, "prefix", "the same, once half of HalfOpen is in use"},
		{"HalfOpenBytes", c.HalfOpenBytes, UnitBytes, "messenger", "kept of those handshakes, beyond door.OwnBytes each"},
		{"door.OwnBytes", door.OwnBytes, UnitBytes, "attempt", "kept of one, that others cannot take"},
		{"FailureRate", int64(c.FailureRate), UnitPerSecond, "source", "connections that come to nothing; others wait"},
		{"FailureBurst", int64(c.FailureBurst), UnitConnections, "source", "the same, at once; of a prefix 4 times as many"},
		{"control.DialsAtOnce", sessions.DialsAtOnce, UnitConnections, "address", "handshakes of ours under way; others wait"},
		{"HandshakeTimeout", int64(c.HandshakeTimeout), UnitNanoseconds, "attempt", "one handshake, made or accepted"},
		{"frame.PreAuthLimits", int64(before.Control), UnitBytes, "frame", "any frame before authentication is done"},
	}
}

// receiveBounds are about what an authenticated peer sends.
func (c *Config) receiveBounds() []Bound {
	list := []Bound{
		{"Limits.Control", int64(c.Limits.Control), UnitBytes, "frame", "segment 0, besides the bound of each tag"},
		{"Limits.Front", int64(c.Limits.Front), UnitBytes, "message", "front"},
		{"Limits.Middle", int64(c.Limits.Middle), UnitBytes, "message", "middle"},
		{"Limits.Data", int64(c.Limits.Data), UnitBytes, "message", "data"},
		{"DispatchBytes", c.DispatchBytes, UnitBytes, "messenger", "received, neither released nor sent on"},
		{"DispatchBytes (share)", own(c.DispatchBytes, ownDispatch), UnitBytes, "connection", "the same, that others cannot take"},
		{"DispatchBytes (reserve)", loop.NewThrottle(c.DispatchBytes).Reserve(), UnitBytes, "messenger", "all these shares, on top of DispatchBytes"},
		{"ConnBytes", c.ConnBytes, UnitBytes, "connection", "the same, of policies without a bound of their own"},
		{"LeastRate", c.LeastRate, UnitRate, "message", "progress of a message that began to come"},
		{"ControlRate", int64(c.ControlRate), UnitPerSecond, "connection", "frames that bring nothing; then it is read less"},
		{"MessageGrace", int64(c.MessageGrace), UnitNanoseconds, "message", "time before LeastRate is asked for"},
	}
	list = append(list, throttleBounds("Default", c.Default)...)
	for _, t := range slices.Sorted(maps.Keys(c.Policies)) {
		p := c.Policies[t]
		list = append(list, throttleBounds("Policies["+t.String()+"]", &p)...)
	}
	return list
}

// throttleBounds are those of all connections of one policy together.
func throttleBounds(name string, p *Policy) []Bound {
	limit := func(t *loop.Throttle) int64 {
		if t == nil {
			return 0
		}
		return t.Limit()
	}
	return []Bound{
		{name + ".Messages", limit(p.Messages), UnitMessages, "policy", "received, neither released nor sent on"},
		{name + ".Bytes", limit(p.Bytes), UnitBytes, "policy", "received, neither released nor sent on"},
		{name + ".StandbyAge", int64(sessions.StandbyAge(p)), UnitNanoseconds, "connection", "time that a session waits for its peer"},
		{name + ".GiveUpAfter", int64(max(p.GiveUpAfter, 0)), UnitNanoseconds, "connection", "time that a connection dials without an answer"},
	}
}

// sendBounds are about what waits to be sent, or to be acknowledged.
func (c *Config) sendBounds() []Bound {
	return []Bound{
		{"QueueBytes", c.QueueBytes, UnitBytes, "connection", "to be sent or acknowledged"},
		{"QueueMessages", c.QueueMessages, UnitMessages, "connection", "to be sent or acknowledged"},
		{"MaxCalls", int64(c.MaxCalls), UnitCalls, "connection", "requests that wait for their reply"},
		{"MaxPostings", int64(c.MaxPostings), UnitPostings, "connection", "buffers of the user's that wait for their data"},
		{"SendBytes", c.SendBytes, UnitBytes, "messenger", "to be sent or acknowledged"},
		{"SendBytes (share)", own(c.SendBytes, ownSend), UnitBytes, "connection", "the same, that others cannot take"},
		{"SendBytes (reserve)", dataplane.NewSendBudget(c.SendBytes, 0).Reserve(), UnitBytes, "messenger", "all these shares, on top of SendBytes"},
	}
}

// fileBounds are about what is read from files.
func (c *Config) fileBounds() []Bound {
	bytes, share := c.Plane.FileBounds()
	return []Bound{
		{"Plane.FileBytes", bytes, UnitBytes, "core", "read from files, until replies are gone"},
		{"Plane.FileBytes (share)", share, UnitBytes, "connection", "the same, that others cannot take"},
	}
}

// otherBounds are about connections that are silent or gone, and about what is
// kept.
func (c *Config) otherBounds() []Bound {
	poolKeep := c.Plane.PoolKeep
	if poolKeep == 0 {
		poolKeep = loop.DefaultPoolKeep
	}
	return []Bound{
		{"IdleTimeout", int64(c.IdleTimeout), UnitNanoseconds, "connection", "time in which nothing moves"},
		{"KeepaliveTimeout", int64(c.KeepaliveTimeout), UnitNanoseconds, "connection", "time until a keepalive is answered"},
		{"MaxStandby", int64(c.MaxStandby), UnitConnections, "messenger", "sessions that wait for their peer"},
		{"MaxBackoff", int64(c.MaxBackoff), UnitNanoseconds, "connection", "pause between attempts that fail"},
		{"SteerTable", int64(c.SteerTable), UnitPeers, "address", "peers that are pinned to a core"},
		{"loop.LinesPerMinute", loop.LinesPerMinute, UnitLines, "cause", "lines a minute in the log about what peers do"},
		{"Plane.PoolKeep", poolKeep, UnitBytes, "core", "free buffers kept, or as many as were in use"},
	}
}

// Unlimited says that nothing is bounded.
func (b Bound) Unlimited() bool { return b.Value == 0 }
