package trace

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is the subject of a record.
type Event string

// The events.
const (
	Open   Event = "open"   // a TCP connection exists
	Banner Event = "banner" // the first bytes of a side
	Frame  Event = "frame"  // a frame, or a part of a handshake or stream of msgr1
	End    Event = "end"    // the TCP connection is over
	Lost   Event = "lost"   // records, or bytes of the stream, are missing here
	Bad    Event = "bad"    // bytes that are no frame, or a damaged frame

	// The conclusions of "ringmsgr decode" from the other events.
	State Event = "state" // the connection has reached another state
	Wrong Event = "wrong" // a peer broke a rule, or refused the other
)

// Side is one end of a TCP connection.
type Side string

// The sides.
const (
	Connector Side = "connector" // it has dialled
	Acceptor  Side = "acceptor"
)

// Other is the other side.
func (s Side) Other() Side {
	if s == Connector {
		return Acceptor
	}
	return Connector
}

// Record is one line of a trace.
type Record struct {
	Time   time.Time `json:"time"`
	Socket uint64    `json:"socket"` // numbers the TCP connections of a trace
	Event  Event     `json:"event"`
	From   Side      `json:"from,omitempty"` // the sender

	// With Open: the addresses, and the side that has written the trace, if it was one of
	// both.
	Connector string `json:"connector,omitempty"`
	Acceptor  string `json:"acceptor,omitempty"`
	Recorder  Side   `json:"recorder,omitempty"`

	// Protocol is "msgr1", "msgr2.0", "msgr2.1", or "msgr2" as long as the revision is not
	// known.
	Protocol string `json:"protocol,omitempty"`
	// Tag is the name of a frame in the protocol.
	Tag string `json:"tag,omitempty"`
	// Segments are the lengths of its segments in bytes. A message has four: header,
	// front, middle, data.
	Segments []int `json:"segments,omitempty"`
	// Fields are the fields of the frame, a pointer to one of the types of this package;
	// nil if it has none, or they cannot be read.
	Fields any `json:"fields,omitempty"`
	// Payload is the beginning of front, middle and data in hex.
	Payload    []string `json:"payload,omitempty"`
	Compressed bool     `json:"compressed,omitempty"`
	Aborted    bool     `json:"aborted,omitempty"` // the sender has given it up

	// Text is the conclusion, with State and Wrong.
	Text string `json:"text,omitempty"`
	// Count is the number of lost records or bytes.
	Count uint64 `json:"count,omitempty"`
	// Error is the reason of the end of a connection, or the error of a frame.
	Error string `json:"error,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. Fields get the type that their tag has.
func (r *Record) UnmarshalJSON(p []byte) error {
	type plain Record // without methods
	line := struct {
		*plain
		Fields json.RawMessage `json:"fields"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(p, &line); err != nil {
		return err
	}
	r.Fields = nil
	if len(line.Fields) == 0 {
		return nil
	}
	f := fieldsOf(r.Event, r.Protocol, r.Tag)
	if f == nil {
		return nil // of a later version
	}
	if err := json.Unmarshal(line.Fields, f); err != nil {
		return fmt.Errorf("fields of %s: %w", r.Tag, err)
	}
	r.Fields = f
	return nil
}
