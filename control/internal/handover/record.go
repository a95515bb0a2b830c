package handover

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

var le = binary.LittleEndian

// recordType is the first byte of a record.
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
	handoverVersion = 2

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

// Errorf is fmt.Errorf with an error that wraps ErrHandOver.
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrHandOver}, args...)...)
}

// writer takes records, which are put together in the room that it has.
type writer interface {
	io.Writer
	AvailableBuffer() []byte
}

// writeRecord writes one record, the payload of which appendTo appends.
func writeRecord(w writer, t recordType, appendTo func([]byte) []byte) error {
	p := appendTo(append(w.AvailableBuffer(), byte(t), 0, 0, 0, 0))
	n := len(p) - recordHead
	if n > recordMax {
		return Errorf("%v of %d bytes", t, n)
	}
	le.PutUint32(p[1:], uint32(n))
	_, err := w.Write(p)
	return err
}

// writePayload writes a record of bytes that are there already.
func writePayload(w writer, payload []byte) error {
	if len(payload) > recordMax {
		return Errorf("%v of %d bytes", recordPayload, len(payload))
	}
	head := append(w.AvailableBuffer(), byte(recordPayload))
	if _, err := w.Write(le.AppendUint32(head, uint32(len(payload)))); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// readRecord reads one record.
func readRecord(r *bufio.Reader) (recordType, []byte, error) {
	head, err := r.Peek(recordHead)
	if len(head) == 0 {
		return 0, nil, err
	}
	if err != nil {
		return 0, nil, noEOF(err)
	}
	t, n := recordType(head[0]), le.Uint32(head[1:])
	if t < recordHello || t > recordRefused || n > recordMax {
		return 0, nil, Errorf("%v of %d bytes", t, n)
	}
	_, _ = r.Discard(recordHead) // it has them
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
func expect(r *bufio.Reader, want recordType) ([]byte, error) {
	t, p, err := readRecord(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %v expected: %w", ErrHandOver, want, err)
	case t == recordRefused:
		return nil, Errorf("refused by the other process: %.*q", textMax, p)
	case t != want:
		return nil, Errorf("%v where %v was due", t, want)
	}
	return p, nil
}

func appendEntity(dst []byte, n wire.EntityName) []byte {
	return wire.AppendString(append(dst, byte(n.Type)), n.ID)
}

func readEntity(r *wire.Reader) wire.EntityName {
	return wire.EntityName{Type: wire.EntityType(r.U8()), ID: r.Str()}
}

// writeMessage writes a message and its payload.
func writeMessage(w writer, m *dataplane.Message) error {
	segs := [3][]byte{m.Front, m.Middle, m.Data}
	for _, s := range segs {
		if len(s) > segmentMax {
			return Errorf("message with a segment of %d bytes", len(s))
		}
	}
	err := writeRecord(w, recordMessage, func(p []byte) []byte {
		p = le.AppendUint16(p, m.Type)
		p = le.AppendUint16(p, m.Priority)
		p = le.AppendUint16(p, m.Version)
		p = le.AppendUint16(p, m.CompatVersion)
		p = le.AppendUint16(p, m.DataOff)
		p = le.AppendUint64(p, m.TID)
		for _, s := range segs {
			p = le.AppendUint32(p, uint32(len(s)))
		}
		return p
	})
	if err != nil {
		return err
	}
	for _, s := range segs {
		for len(s) > 0 {
			n := min(len(s), payloadMax)
			if err := writePayload(w, s[:n]); err != nil {
				return err
			}
			s = s[n:]
		}
	}
	return nil
}

// readMessage reads a message and its payload. Memory is taken as the payload
// comes, not as its length says.
func readMessage(r *bufio.Reader) (*dataplane.Message, error) {
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

func readSegment(r *bufio.Reader, n uint32) ([]byte, error) {
	if n > segmentMax {
		return nil, Errorf("message with a segment of %d bytes", n)
	}
	var seg []byte
	for uint32(len(seg)) < n {
		p, err := expect(r, recordPayload)
		if err != nil {
			return nil, err
		}
		switch {
		case len(p) == 0 || uint64(len(seg))+uint64(len(p)) > uint64(n):
			return nil, Errorf("payload of %d bytes, %d of %d are there", len(p), len(seg), n)
		case seg == nil && uint32(len(p)) == n:
			return p, nil
		}
		seg = append(seg, p...)
	}
	return seg, nil
}

// Hello is the identity of the successor.
type Hello struct {
	Entity   wire.EntityName
	Nonce    uint32
	AnyNonce bool // it takes that of the predecessor
}

// succeeds says whether the offer is for the sender of hello.
func (h *Hello) succeeds(o *Offer) bool {
	return h.Entity == o.Entity && (h.AnyNonce || h.Nonce == o.Nonce)
}

func (h *Hello) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, handoverMagic)
	dst = le.AppendUint16(dst, handoverVersion)
	dst = appendEntity(dst, h.Entity)
	dst = le.AppendUint32(dst, h.Nonce)
	return wire.AppendBool(dst, h.AnyNonce)
}

// readVersion reads the version, with which both sides begin.
func readVersion(r *wire.Reader) {
	if m := r.U64(); r.Err() == nil && m != handoverMagic {
		r.Fail(Errorf("the other side speaks something else"))
	}
	if v := r.U16(); r.Err() == nil && v != handoverVersion {
		r.Fail(Errorf("version %d, we speak %d", v, handoverVersion))
	}
}

func decodeHello(p []byte) (h Hello, err error) {
	r := wire.NewReader(p)
	readVersion(r)
	h = Hello{Entity: readEntity(r), Nonce: r.U32(), AnyNonce: r.Bool()}
	return h, broken(recordHello, r)
}

func broken(t recordType, r *wire.Reader) error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrHandOver, t, err)
	}
	return nil
}

// Offer is the identity of the predecessor, and the number of records that it is about to
// send.
type Offer struct {
	Entity    wire.EntityName
	Nonce     uint32
	Number    int64
	Bound     bool
	Addrs     wire.AddrVec
	Listeners uint32 // descriptors
	Steering  uint32 // descriptors
}

func (o *Offer) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, handoverMagic)
	dst = le.AppendUint16(dst, handoverVersion)
	dst = appendEntity(dst, o.Entity)
	dst = le.AppendUint32(dst, o.Nonce)
	dst = le.AppendUint64(dst, uint64(o.Number))
	dst = wire.AppendBool(dst, o.Bound)
	dst = o.Addrs.AppendTo(dst)
	dst = le.AppendUint32(dst, o.Listeners)
	return le.AppendUint32(dst, o.Steering)
}

func decodeOffer(p []byte) (o Offer, err error) {
	r := wire.NewReader(p)
	readVersion(r)
	o = Offer{
		Entity: readEntity(r), Nonce: r.U32(), Number: r.S64(), Bound: r.Bool(), Addrs: r.AddrVec(),
		Listeners: r.U32(), Steering: r.U32(),
	}
	if o.Listeners > filesMax || o.Steering > filesMax {
		r.Fail(Errorf("%d descriptors", uint64(o.Listeners)+uint64(o.Steering)))
	}
	return o, broken(recordOffer, r)
}

// Done ends the sessions, and has their number.
type Done struct {
	Last     Attempts
	Sessions uint32
	Messages uint64
}

func (d *Done) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, d.Last.Msgr2)
	dst = le.AppendUint64(dst, d.Last.Msgr1)
	dst = le.AppendUint32(dst, d.Sessions)
	return le.AppendUint64(dst, d.Messages)
}

func decodeDone(p []byte) (d Done, err error) {
	r := wire.NewReader(p)
	d = Done{Last: Attempts{Msgr2: r.U64(), Msgr1: r.U64()}, Sessions: r.U32(), Messages: r.U64()}
	return d, broken(recordDone, r)
}

// Session is one lossless session without its socket.
type Session struct {
	Peer       session.Peer // but for From
	Once       bool
	PolicyName string
	Policy     session.Policy
	Record     session.Record

	PeerGlobalSeq, ConnectSeq uint64
	Features                  wire.Features

	IO dataplane.HandlerState // its owner releases it
}

// A later version of this package may only append fields to a record: an older reader
// ignores them, and a newer reader that misses them takes their defaults. So the version
// of the conversation stays.

// bools are the fields of one byte each, in their order.
func (s *Session) bools() [10]*bool {
	p := &s.Peer
	return [...]*bool{
		&p.Dialled, &p.Near, &p.Anonymous, &p.Proven, &p.NumberKnown, &s.Once,
		&s.Policy.Server, &s.Policy.Standby, &s.Policy.ResetCheck, &s.Policy.Register,
	}
}

// numbers are the fields of eight bytes each, in their order.
func (s *Session) numbers() [10]*uint64 {
	return [...]*uint64{
		(*uint64)(&s.Policy.Supported), (*uint64)(&s.Policy.Required), (*uint64)(&s.Features), &s.PeerGlobalSeq, &s.ConnectSeq,
		&s.Record.ClientCookie, &s.Record.ServerCookie, &s.Record.ToldSeq, &s.IO.InSeq, &s.IO.OutSeq,
	}
}

// messages are the lists of messages, in their order.
func (s *Session) messages() [3]*[]*dataplane.Message {
	return [...]*[]*dataplane.Message{&s.IO.Sent, &s.IO.Replay, &s.IO.Queued}
}

// appendTo appends all but the messages.
func (s *Session) appendTo(dst []byte) []byte {
	dst = s.Peer.Target.AppendTo(dst)
	dst = s.Peer.Addrs.AppendTo(append(dst, byte(s.Peer.Type)))
	dst = appendEntity(dst, s.Peer.Entity)
	dst = le.AppendUint64(dst, uint64(s.Peer.Number))
	dst = wire.AppendString(dst, s.PolicyName)
	for _, b := range s.bools() {
		dst = wire.AppendBool(dst, *b)
	}
	for _, n := range s.numbers() {
		dst = le.AppendUint64(dst, *n)
	}
	dst = le.AppendUint32(wire.AppendU32s(dst, s.Record.Told), s.Record.Opened)
	for _, list := range s.messages() {
		dst = le.AppendUint32(dst, uint32(len(*list)))
	}
	return dst
}

// decodeSession is the other side of appendTo; lens are the numbers of messages
// that follow.
func decodeSession(p []byte) (s Session, lens [3]uint32, err error) {
	r := wire.NewReader(p)
	s.Peer.Target = r.Addr()
	s.Peer.Type = wire.EntityType(r.U8())
	s.Peer.Addrs = r.AddrVec()
	s.Peer.Entity = readEntity(r)
	s.Peer.Number = r.S64()
	s.PolicyName = r.Str()
	for _, b := range s.bools() {
		*b = r.Bool()
	}
	for _, n := range s.numbers() {
		*n = r.U64()
	}
	s.Record.Told, s.Record.Opened = r.U32s(), r.U32()
	for i := range lens {
		if lens[i] = r.U32(); lens[i] > messagesMax {
			r.Fail(Errorf("%d messages", lens[i]))
		}
	}
	if uint64(lens[0]) > s.IO.OutSeq {
		r.Fail(Errorf("%d messages sent up to sequence %d", lens[0], s.IO.OutSeq))
	}
	if s.Peer.Target.IsBlank() {
		r.Fail(Errorf("session without an address"))
	}
	return s, lens, broken(recordSession, r)
}

// Write writes the session and its messages into a buffer, and returns their
// number.
func (s *Session) Write(w writer) (n uint64, err error) {
	if err := writeRecord(w, recordSession, s.appendTo); err != nil {
		return 0, err
	}
	for _, list := range s.messages() {
		if len(*list) > messagesMax {
			return n, Errorf("session with %d messages", len(*list))
		}
		for _, m := range *list {
			if err := writeMessage(w, m); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// readSession reads the messages of the session with record p.
func readSession(r *bufio.Reader, p []byte) (s Session, n uint64, err error) {
	s, lens, err := decodeSession(p)
	if err != nil {
		return s, 0, err
	}
	for i, list := range s.messages() {
		for range lens[i] {
			m, err := readMessage(r)
			if err != nil {
				return s, n, err
			}
			*list = append(*list, m)
			n++
		}
	}
	return s, n, nil
}

// readSessions reads until the predecessor has sent everything.
func readSessions(r *bufio.Reader) (list []Session, d Done, err error) {
	var messages uint64
	for {
		t, p, err := readRecord(r)
		if err != nil {
			return nil, d, Errorf("sessions: %w", noEOF(err))
		}
		switch t {
		case recordSession:
			if len(list) == sessionsMax {
				return nil, d, Errorf("more than %d sessions", sessionsMax)
			}
			s, n, err := readSession(r, p)
			if err != nil {
				return nil, d, err
			}
			list = append(list, s)
			messages += n
		case recordDone:
			if d, err = decodeDone(p); err != nil {
				return nil, d, err
			}
			if d.Sessions != uint32(len(list)) || d.Messages != messages {
				return nil, d, Errorf("%d sessions with %d messages came, %d and %d were sent", len(list), messages, d.Sessions, d.Messages)
			}
			return list, d, nil
		case recordRefused:
			return nil, d, Errorf("refused by the other process: %.*q", textMax, p)
		default:
			return nil, d, Errorf("%v among the sessions", t)
		}
	}
}
