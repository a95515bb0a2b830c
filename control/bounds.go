package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Bound is one bound on the memory, the work or the time that peers can take.
type Bound struct {
	// Name is the field of Config that sets it, for example MaxStandby or Sending.QueueBytes.
	// " (share)", " (reserve)", " (source)" or " (prefix)" marks a part of that bound. A constant
	// begins with its package.
	Name string `json:"name"`
	// Value is in units of Unit; 0: unlimited.
	Value int64 `json:"value"`
	// Unit is "bytes", "bytes/s" (at least), "ns", "1/s", or a noun, for example "messages".
	Unit string `json:"unit"`
	// Per is the scope of the bound, for example "messenger" or "connection".
	Per string `json:"per"`
	// Of is the bounded thing, in a few words.
	Of string `json:"of"`
}

// Bounds are the bounds of a messenger with this configuration, with defaults, in the order in
// which a peer meets them. Throttles have their present limits. The configuration is not
// checked.
func (c Config) Bounds() []Bound {
	c = c.withDefaults()
	before, shares := frame.PreAuthLimits(), door.Shares(c.Door.HalfOpen)
	list := []Bound{
		// Before the authentication.
		{"Door.HalfOpen", int64(c.Door.HalfOpen), "connections", "messenger", "handshakes of accepted connections under way"},
		{"Door.HalfOpen (source)", int64(shares.PerSource), "connections", "source", "the same, once half of Door.HalfOpen is in use"},
		{"Door.HalfOpen (prefix)", int64(shares.PerPrefix), "connections", "prefix", "the same, once half of Door.HalfOpen is in use"},
		{"Door.Bytes", c.Door.Bytes, "bytes", "messenger", "kept of those, beyond door.OwnBytes each"},
		{"door.OwnBytes", door.OwnBytes, "bytes", "attempt", "kept of one, that others cannot take"},
		{"Door.FailureRate", int64(c.Door.FailureRate), "1/s", "source", "connections that come to nothing; others wait"},
		{"Door.FailureBurst", int64(c.Door.FailureBurst), "connections", "source", "the same, at once; of a prefix 4 times as many"},
		{"control.DialsAtOnce", sessions.DialsAtOnce, "connections", "address", "handshakes of ours under way; others wait"},
		{"Timeouts.Handshake", int64(c.Timeouts.Handshake), "ns", "attempt", "one handshake, made or accepted"},
		{"frame.PreAuthLimits", int64(before.Control), "bytes", "frame", "any frame before authentication is done"},
		// The messages of an authenticated peer.
		{"Receiving.Limits.Control", int64(c.Receiving.Limits.Control), "bytes", "frame", "segment 0, besides the bound of each tag"},
		{"Receiving.Limits.Front", int64(c.Receiving.Limits.Front), "bytes", "message", "front"},
		{"Receiving.Limits.Middle", int64(c.Receiving.Limits.Middle), "bytes", "message", "middle"},
		{"Receiving.Limits.Data", int64(c.Receiving.Limits.Data), "bytes", "message", "data"},
		{"Receiving.Bytes", c.Receiving.Bytes, "bytes", "messenger", "received, neither released nor sent on"},
		{"Receiving.Bytes (share)", own(c.Receiving.Bytes, ownDispatch), "bytes", "connection", "the same, that others cannot take"},
		{"Receiving.Bytes (reserve)", loop.NewThrottle(c.Receiving.Bytes).Reserve(), "bytes", "messenger", "all these shares, on top of Receiving.Bytes"},
		{"Receiving.ConnBytes", c.Receiving.ConnBytes, "bytes", "connection", "the same, where the policy has no bound"},
		{"Receiving.LeastRate", c.Receiving.LeastRate, "bytes/s", "message", "progress of a message that began to come"},
		{"dataplane.DefaultControlRate", dataplane.DefaultControlRate, "1/s", "connection", "frames that bring nothing; then read less"},
		{"Receiving.Grace", int64(c.Receiving.Grace), "ns", "message", "time before Receiving.LeastRate is asked for"},
	}
	list = append(list, throttleBounds("Default", c.Default)...)
	for _, t := range slices.Sorted(maps.Keys(c.Policies)) {
		p := c.Policies[t]
		list = append(list, throttleBounds("Policies["+t.String()+"]", &p)...)
	}
	bytes, share := c.Plane.FileBounds()
	return append(list, []Bound{
		// Messages that wait to be sent, or for an ack.
		{"Sending.QueueBytes", c.Sending.QueueBytes, "bytes", "connection", "to be sent or acknowledged"},
		{"Sending.QueueMessages", c.Sending.QueueMessages, "messages", "connection", "to be sent or acknowledged"},
		{"Sending.Calls", int64(c.Sending.Calls), "calls", "connection", "requests that wait for their reply"},
		{"Receiving.Postings", int64(c.Receiving.Postings), "postings", "connection", "buffers of the user's that wait for their data"},
		{"Sending.Bytes", c.Sending.Bytes, "bytes", "messenger", "to be sent or acknowledged"},
		{"Sending.Bytes (share)", own(c.Sending.Bytes, ownSend), "bytes", "connection", "the same, that others cannot take"},
		{"Sending.Bytes (reserve)", dataplane.NewSendBudget(c.Sending.Bytes, 0).Reserve(), "bytes", "messenger", "all these shares, on top of Sending.Bytes"},
		// Reads of files.
		{"Plane.FileBytes", bytes, "bytes", "core", "read from files, until replies are gone"},
		{"Plane.FileBytes (share)", share, "bytes", "connection", "the same, that others cannot take"},
		// Connections that are silent or gone, and kept memory.
		{"Timeouts.Idle", int64(c.Timeouts.Idle), "ns", "connection", "time in which nothing moves"},
		{"Timeouts.Keepalive", int64(c.Timeouts.Keepalive), "ns", "connection", "time until a keepalive is answered"},
		{"MaxStandby", int64(c.MaxStandby), "connections", "messenger", "sessions that wait for their peer"},
		{"Timeouts.MaxBackoff", int64(c.Timeouts.MaxBackoff), "ns", "connection", "pause between attempts that fail"},
		{"steering.TableSize", steering.TableSize, "peers", "address", "peers that are pinned to a core"},
		{"loop.LinesPerMinute", loop.LinesPerMinute, "lines", "cause", "lines a minute in the log about what peers do"},
		{"Plane.PoolKeep", cmp.Or(c.Plane.PoolKeep, loop.DefaultPoolKeep), "bytes", "core", "free buffers kept, or as many as were in use"},
	}...)
}

// throttleBounds are the bounds of all connections of one policy together.
func throttleBounds(name string, p *Policy) []Bound {
	limit := func(t *loop.Throttle) int64 {
		if t == nil {
			return 0
		}
		return t.Limit()
	}
	return []Bound{
		{name + ".Messages", limit(p.Messages), "messages", "policy", "received, neither released nor sent on"},
		{name + ".Bytes", limit(p.Bytes), "bytes", "policy", "received, neither released nor sent on"},
		{name + ".StandbyAge", int64(sessions.StandbyAge(p)), "ns", "connection", "time that a session waits for its peer"},
		{name + ".GiveUpAfter", int64(max(p.GiveUpAfter, 0)), "ns", "connection", "time that a connection dials without an answer"},
	}
}
