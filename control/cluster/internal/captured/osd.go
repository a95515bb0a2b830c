package captured

import (
	"encoding/binary"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

var le = binary.LittleEndian

// Request is MOSDOp as an OSD of a test reads it.
type Request struct {
	Epoch   uint32
	Flags   uint32
	Seconds uint32 // of the time of modification
	Name    string
	Steps   []Step
	SnapSeq uint64
	Snaps   []uint64
	attempt uint32
}

// Step is an operation of a request, and its outcome.
type Step struct {
	Code    uint16
	Flags   uint32
	Args    []byte
	In, Out []byte
	Result  int32
}

// ReadRequest reads MOSDOp of a version, which is well-formed.
func ReadRequest(version uint16, front, data []byte) *Request {
	q, r := &Request{}, wire.NewReader(front)
	skip := func(uint8, *wire.Reader) {}
	r.Envelope(1, skip) // placement group
	r.U32()             // hash
	q.Epoch, q.Flags = r.U32(), r.U32()
	r.Envelope(2, skip) // number of the request
	r.Skip(24)          // trace
	if version >= 9 {
		r.Envelope(1, skip)
	}
	r.U32() // incarnation
	q.Seconds = r.U32()
	r.U32()
	r.Envelope(6, skip)
	q.Name = r.Str()
	q.Steps = make([]Step, r.U16())
	for i := range q.Steps {
		s := &q.Steps[i]
		s.Code, s.Flags, s.Args = r.U16(), r.U32(), r.Bytes(28)
		n := r.U32()
		s.In, data = data[:n:n], data[n:]
	}
	r.Skip(8) // the snapshot that reads see
	q.SnapSeq, q.Snaps = r.U64(), wire.ListOf(r, 8, (*wire.Reader).U64)
	q.attempt = r.U32()
	return q
}

// Reply is MOSDOpReply version 8, with the outcomes of the steps and the version of the object.
func (q *Request) Reply(result int32, version uint64) (front, data []byte) {
	b := append(wire.AppendString(nil, q.Name), make([]byte, 17+8)...)
	b = append(le.AppendUint32(b, uint32(result)), make([]byte, 12+4)...)
	b = le.AppendUint32(b, uint32(len(q.Steps)))
	for i := range q.Steps {
		s := &q.Steps[i]
		b = append(append(le.AppendUint16(b, s.Code), make([]byte, 4)...), s.Args...)
		b, data = le.AppendUint32(b, uint32(len(s.Out))), append(data, s.Out...)
	}
	b = le.AppendUint32(b, q.attempt)
	for i := range q.Steps {
		b = le.AppendUint32(b, uint32(q.Steps[i].Result))
	}
	b = le.AppendUint64(append(b, make([]byte, 12)...), version)
	return append(b, make([]byte, 1+24)...), data
}

// OSDMaps is MOSDMap with an incremental and a whole map of an epoch; nil: without one.
func OSDMaps(fsid []byte, epoch uint32, incremental, whole []byte) []byte {
	b := append([]byte(nil), fsid...)
	for _, p := range [][]byte{incremental, whole} {
		if p == nil {
			b = le.AppendUint32(b, 0)
			continue
		}
		b = wire.AppendBlob(le.AppendUint32(le.AppendUint32(b, 1), epoch), p)
	}
	return append(le.AppendUint32(le.AppendUint32(b, 1), epoch), 0, 0, 0, 0)
}

// WatchNotify is the front of MWatchNotify version 3, of a kind, for a watch or a notify, with the id of the notify.
func WatchNotify(kind uint8, cookie, id uint64, payload []byte, result int32, notifier uint64) []byte {
	b := le.AppendUint64([]byte{1, kind}, cookie)
	b = wire.AppendBlob(le.AppendUint64(le.AppendUint64(b, 0), id), payload)
	return le.AppendUint64(le.AppendUint32(b, uint32(result)), notifier)
}
