package osdop

import (
	"bytes"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The kinds of a Backoff.
const (
	Block    uint8 = 1
	AckBlock uint8 = 2
	Unblock  uint8 = 3
)

// Backoff is MOSDBackoff: an OSD takes no requests on the objects of a group in a range, from Begin on and
// before End, or on Begin alone if they are the same. The client answers Block with AckBlock and its own
// epoch.
type Backoff struct {
	PG         osdmap.PG
	Shard      int8
	Epoch      uint32
	What       uint8
	ID         uint64
	Begin, End HObject
}

// maxBackoff bounds MOSDBackoff: two objects, whose names, namespaces and locators have a few KiB at most. A
// client keeps thousands.
const maxBackoff = 16 << 10

// DecodeBackoff reads the front of MOSDBackoff.
func DecodeBackoff(front []byte) (b Backoff, err error) {
	if len(front) > maxBackoff {
		return Backoff{}, fmt.Errorf("MOSDBackoff: %w: %d bytes", wire.ErrMalformed, len(front))
	}
	r := wire.NewReader(front)
	r.Envelope(1, func(_ uint8, r *wire.Reader) {
		b.PG = osdmap.ReadPG(r)
		b.Shard = int8(r.U8())
	})
	b.Epoch, b.What, b.ID = r.U32(), r.U8(), r.U64()
	b.Begin, b.End = ReadHObject(r), ReadHObject(r)
	if err := r.Err(); err != nil {
		return Backoff{}, fmt.Errorf("MOSDBackoff: %w", err)
	}
	return b, nil
}

// AppendTo appends the front of MOSDBackoff, whose versions are 1 and 1.
func (b *Backoff) AppendTo(dst []byte) []byte {
	dst = le.AppendUint32(appendShard(dst, b.PG, b.Shard), b.Epoch)
	dst = le.AppendUint64(append(dst, b.What), b.ID)
	return b.End.AppendTo(b.Begin.AppendTo(dst))
}

// The kinds of a watch operation.
const (
	WatchEnd       uint8 = 0
	WatchBegin     uint8 = 3
	WatchReconnect uint8 = 5
	WatchPing      uint8 = 7
)

// Watch begins, goes on with or ends a watch. generation counts the times that it had to be registered again;
// timeout is in seconds, 0: the OSD's default.
func Watch(cookie uint64, what uint8, generation, timeout uint32) Op {
	op := Extent(CodeWatch, cookie, 0, nil)
	op.Args[16] = what
	le.PutUint32(op.Args[17:], generation)
	le.PutUint32(op.Args[21:], timeout)
	return op
}

// Notify sends a payload to all watchers of the object. The answer has a notify id (NotifyOutput);
// WatchNotify follows with the cookie. timeout is in seconds, 0: the OSD's default.
func Notify(cookie uint64, timeout uint32, payload []byte) Op {
	b := le.AppendUint32(le.AppendUint32(nil, 1), timeout)
	return Extent(CodeNotify, cookie, 0, wire.AppendBlob(b, payload))
}

// NotifyOutput is the id of a notify, which EventComplete has.
func NotifyOutput(out []byte) (id uint64, err error) {
	r := wire.NewReader(out)
	id = r.U64()
	return id, r.Err()
}

// NotifyAck answers an event of a watch.
func NotifyAck(notifyID, cookie uint64, reply []byte) Op {
	b := le.AppendUint64(le.AppendUint64(nil, notifyID), cookie)
	return Op{Code: CodeNotifyAck, Data: wire.AppendBlob(b, reply)}
}

// The kinds of a WatchNotify.
const (
	EventNotify     uint8 = 1 // to a watcher: a notification
	EventComplete   uint8 = 2 // to the notifier: all have answered, or their time is over
	EventDisconnect uint8 = 3 // to a watcher: the watch is over
)

// WatchNotify is MWatchNotify.
type WatchNotify struct {
	What     uint8
	Cookie   uint64 // of the watch, or of the notify that is complete
	NotifyID uint64
	Payload  []byte // aliases the message
	Result   int32  // of EventComplete; the answers are the message's data (DecodeAnswers)
	Notifier uint64 // its global id
}

// DecodeWatchNotify reads the front of MWatchNotify, up to version 3.
func DecodeWatchNotify(front []byte) (w WatchNotify, err error) {
	r := wire.NewReader(front)
	r.U8()
	w.What, w.Cookie = r.U8(), r.U64()
	r.U64() // the object's version
	w.NotifyID, w.Payload = r.U64(), r.Blob()
	w.Result, w.Notifier = r.S32(), r.U64()
	if err := r.Err(); err != nil {
		return WatchNotify{}, fmt.Errorf("MWatchNotify: %w", err)
	}
	return w, nil
}

// Answer is the answer of one watcher to a notify.
type Answer struct {
	Client, Cookie uint64 // the watcher's global id, and its watch
	Data           []byte
	Missed         bool // it did not answer in time
}

// DecodeAnswers reads the data of EventComplete, and keeps none of it.
func DecodeAnswers(data []byte) ([]Answer, error) {
	if len(data) == 0 {
		return nil, nil
	}
	r := wire.NewReader(data)
	came := wire.ListOf(r, 8+8+4, func(r *wire.Reader) Answer {
		return Answer{r.U64(), r.U64(), bytes.Clone(r.Blob()), false}
	})
	missed := wire.ListOf(r, 8+8, func(r *wire.Reader) Answer { return Answer{r.U64(), r.U64(), nil, true} })
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("answers to a notify: %w", err)
	}
	return append(came, missed...), nil
}
