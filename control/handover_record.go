package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// A hand-over is a stream of records in both directions, each a type, a length
// of 32 bits and so many bytes; numbers are little-endian.
//
//	successor                          predecessor
//	hello  (version, who, nonce)   ->
//	                               <-  offer (identity, numbers of what follows)
//	                               <-  listeners, steering (with descriptors)
//	ready                          ->
//	                               <-  session, its messages, their payload; ...
//	                               <-  done (how many there were)
//	committed                      ->
//
// Either side may send refused, with a text, instead of its next record.
type recordType uint8

const (
	recordHello recordType = iota + 1
	recordOffer
	recordListeners
	recordSteering
	recordReady
	recordSession
	recordMessage
	recordPayload
	recordDone
	recordCommitted
	recordRefused
)

var recordNames = [...]string{
	"none", "hello", "offer", "listeners", "steering", "ready", "session", "message", "payload", "done", "committed", "refused",
}

func (t recordType) String() string {
	if int(t) < len(recordNames) {
		return recordNames[t]
	}
	return fmt.Sprintf("record(%d)", uint8(t))
}

const (
	handoverMagic   = 0x52564f48474d4e52 // "RNMGHOVR"
	handoverVersion = 1

	recordHead  = 5
	recordMax   = 1 << 20   // payload of one record
	payloadMax  = 256 << 10 // of a message in one record
	segmentMax  = 1 << 30   // front, middle or data of a message
	sessionsMax = 1 << 20
	messagesMax = 1 << 24 // of one session
	textMax     = 1 << 10
)

// ErrHandOver is wrapped by the errors of a hand-over that failed.
var ErrHandOver = errors.New("control: hand-over failed")

func badRecord(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrHandOver}, args...)...)
}

// writeRecord writes one record.
func writeRecord(w io.Writer, t recordType, payload []byte) error {
	if len(payload) > recordMax {
		return badRecord("%v of %d bytes", t, len(payload))
	}
	head := [recordHead]byte{byte(t)}
	binary.LittleEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// readRecord reads one record.
func readRecord(r io.Reader) (recordType, []byte, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	t, n := recordType(head[0]), binary.LittleEndian.Uint32(head[1:])
	if t < recordHello || t > recordRefused || n > recordMax {
		return 0, nil, badRecord("%v of %d bytes", t, n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return 0, nil, noEOF(err)
	}
	return t, p, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// expect reads the record that is due. A refusal is the error that it carries.
func expect(r io.Reader, want recordType) ([]byte, error) {
	t, p, err := readRecord(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %v expected: %w", ErrHandOver, want, err)
	case t == recordRefused:
		return nil, badRecord("refused by the other process: %.*q", textMax, p)
	case t != want:
		return nil, badRecord("%v where %v was due", t, want)
	}
	return p, nil
}

// hello is what the successor says of itself.
type hello struct {
	entity   wire.EntityName
	nonce    uint32
	anyNonce bool // it takes that of the predecessor
}

func (h *hello) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, handoverMagic)
	dst = le.AppendUint16(dst, handoverVersion)
	dst = appendEntity(dst, h.entity)
	dst = le.AppendUint32(dst, h.nonce)
	return wire.AppendBool(dst, h.anyNonce)
}

var le = binary.LittleEndian

// readVersion reads what both sides begin with.
func readVersion(r *wire.Reader) {
	if m := r.U64(); r.Err() == nil && m != handoverMagic {
		r.Fail(badRecord("the other side speaks something else"))
	}
	if v := r.U16(); r.Err() == nil && v != handoverVersion {
		r.Fail(badRecord("version %d, we speak %d", v, handoverVersion))
	}
}

func decodeHello(p []byte) (h hello, err error) {
	r := wire.NewReader(p)
	readVersion(r)
	h = hello{entity: readEntity(r), nonce: r.U32(), anyNonce: r.Bool()}
	return h, broken(recordHello, r)
}

func broken(t recordType, r *wire.Reader) error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrHandOver, t, err)
	}
	return nil
}

// offer is the predecessor's identity and what it is about to send.
type offer struct {
	entity    wire.EntityName
	nonce     uint32
	number    int64
	bound     bool
	addrs     wire.AddrVec
	listeners uint32 // descriptors
	steering  uint32 // descriptors
}

func (o *offer) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, handoverMagic)
	dst = le.AppendUint16(dst, handoverVersion)
	dst = appendEntity(dst, o.entity)
	dst = le.AppendUint32(dst, o.nonce)
	dst = le.AppendUint64(dst, uint64(o.number))
	dst = wire.AppendBool(dst, o.bound)
	dst = o.addrs.AppendTo(dst)
	dst = le.AppendUint32(dst, o.listeners)
	return le.AppendUint32(dst, o.steering)
}

func decodeOffer(p []byte) (o offer, err error) {
	r := wire.NewReader(p)
	readVersion(r)
	o = offer{
		entity: readEntity(r), nonce: r.U32(), number: r.S64(), bound: r.Bool(), addrs: r.AddrVec(),
		listeners: r.U32(), steering: r.U32(),
	}
	if o.listeners > filesMax || o.steering > filesMax {
		r.Fail(badRecord("%d descriptors", uint64(o.listeners)+uint64(o.steering)))
	}
	return o, broken(recordOffer, r)
}

// done ends the sessions.
type done struct {
	globalSeq uint64
	sessions  uint32
	messages  uint64
}

func (d *done) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, d.globalSeq)
	dst = le.AppendUint32(dst, d.sessions)
	return le.AppendUint64(dst, d.messages)
}

func decodeDone(p []byte) (d done, err error) {
	r := wire.NewReader(p)
	d = done{globalSeq: r.U64(), sessions: r.U32(), messages: r.U64()}
	return d, broken(recordDone, r)
}

func appendEntity(dst []byte, n wire.EntityName) []byte {
	return wire.AppendString(append(dst, byte(n.Type)), n.ID)
}

func readEntity(r *wire.Reader) wire.EntityName {
	return wire.EntityName{Type: wire.EntityType(r.U8()), ID: r.Str()}
}

// writeMessage writes a message and its payload.
func writeMessage(w io.Writer, m *Message) error {
	segs := [3][]byte{m.Front, m.Middle, m.Data}
	p := make([]byte, 0, 64)
	p = le.AppendUint16(p, m.Type)
	p = le.AppendUint16(p, m.Priority)
	p = le.AppendUint16(p, m.Version)
	p = le.AppendUint16(p, m.CompatVersion)
	p = le.AppendUint16(p, m.DataOff)
	p = le.AppendUint64(p, m.TID)
	for _, s := range segs {
		if len(s) > segmentMax {
			return badRecord("message with a segment of %d bytes", len(s))
		}
		p = le.AppendUint32(p, uint32(len(s)))
	}
	if err := writeRecord(w, recordMessage, p); err != nil {
		return err
	}
	for _, s := range segs {
		for len(s) > 0 {
			n := min(len(s), payloadMax)
			if err := writeRecord(w, recordPayload, s[:n]); err != nil {
				return err
			}
			s = s[n:]
		}
	}
	return nil
}

// readMessage reads a message and its payload. Memory is taken as the payload
// comes, not as its length says.
func readMessage(r io.Reader) (*Message, error) {
	p, err := expect(r, recordMessage)
	if err != nil {
		return nil, err
	}
	rd := wire.NewReader(p)
	m := &dataplane.Message{
		Type: rd.U16(), Priority: rd.U16(), Version: rd.U16(), CompatVersion: rd.U16(), DataOff: rd.U16(), TID: rd.U64(),
	}
	lens := [3]uint32{rd.U32(), rd.U32(), rd.U32()}
	if err := broken(recordMessage, rd); err != nil {
		return nil, err
	}
	for i, seg := range [3]*[]byte{&m.Front, &m.Middle, &m.Data} {
		if *seg, err = readSegment(r, lens[i]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func readSegment(r io.Reader, n uint32) ([]byte, error) {
	if n > segmentMax {
		return nil, badRecord("message with a segment of %d bytes", n)
	}
	var seg []byte
	for uint32(len(seg)) < n {
		p, err := expect(r, recordPayload)
		if err != nil {
			return nil, err
		}
		switch {
		case len(p) == 0 || uint64(len(seg))+uint64(len(p)) > uint64(n):
			return nil, badRecord("payload of %d bytes, %d of %d are there", len(p), len(seg), n)
		case seg == nil && uint32(len(p)) == n:
			return p, nil
		}
		seg = append(seg, p...)
	}
	return seg, nil
}
