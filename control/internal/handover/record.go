package handover

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/control/internal/layout"
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

// writePayload writes a record of at most payloadMax bytes that are there already.
func writePayload(w writer, payload []byte) error {
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

// message is the record of a message, whose payload follows.
type message struct {
	*dataplane.Message
	lens [3]uint32 // of front, middle and data
}

func (m *message) Layout(l *layout.Coder) {
	l.Fields(&m.Type, &m.Priority, &m.Version, &m.CompatVersion, &m.DataOff, &m.TID, &m.lens[0], &m.lens[1], &m.lens[2])
}

// writeMessage writes a message and its payload.
func writeMessage(w writer, m *dataplane.Message) error {
	segs, rec := [3][]byte{m.Front, m.Middle, m.Data}, message{Message: m}
	for i, s := range segs {
		if len(s) > segmentMax {
			return Errorf("message with a segment of %d bytes", len(s))
		}
		rec.lens[i] = uint32(len(s))
	}
	if err := writeRecord(w, recordMessage, func(p []byte) []byte { return layout.Append(p, &rec) }); err != nil {
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
	m := message{Message: new(dataplane.Message)}
	if err := decode(p, recordMessage, &m); err != nil {
		return nil, err
	}
	for i, seg := range [3]*[]byte{&m.Front, &m.Middle, &m.Data} {
		if *seg, err = readSegment(r, m.lens[i]); err != nil {
			return nil, err
		}
	}
	return m.Message, nil
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

// Layout implements [layout.Structure].
func (h *Hello) Layout(l *layout.Coder) {
	version(l)
	l.Fields(&h.Entity.Type, &h.Entity.ID, &h.Nonce, &h.AnyNonce)
}

// version is the version, with which both sides begin.
func version(l *layout.Coder) {
	magic, v := uint64(handoverMagic), uint16(handoverVersion)
	l.Fields(&magic, &v)
	switch r := l.Reader(); {
	case r == nil || r.Err() != nil:
	case magic != handoverMagic:
		r.Fail(Errorf("the other side speaks something else"))
	case v != handoverVersion:
		r.Fail(Errorf("version %d, we speak %d", v, handoverVersion))
	}
}

// decode reads the payload of a record. Bytes behind the known fields are ignored.
func decode(p []byte, t recordType, s layout.Structure) error {
	r := wire.NewReader(p)
	layout.Read(r, s)
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

// Layout implements [layout.Structure].
func (o *Offer) Layout(l *layout.Coder) {
	version(l)
	l.Fields(&o.Entity.Type, &o.Entity.ID, &o.Nonce, &o.Number, &o.Bound, &o.Addrs, &o.Listeners, &o.Steering)
	if r := l.Reader(); r != nil && (o.Listeners > filesMax || o.Steering > filesMax) {
		r.Fail(Errorf("%d descriptors", uint64(o.Listeners)+uint64(o.Steering)))
	}
}

// Done ends the sessions, and has their number.
type Done struct {
	Last     Attempts
	Sessions uint32
	Messages uint64
}

// Layout implements [layout.Structure].
func (d *Done) Layout(l *layout.Coder) {
	l.Fields(&d.Last.Msgr2, &d.Last.Msgr1, &d.Sessions, &d.Messages)
}

// Session is one lossless session without its socket.
type Session struct {
	Peer       session.Peer
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

// messages are the lists of messages, in their order.
func (s *Session) messages() [3]*[]*dataplane.Message {
	return [...]*[]*dataplane.Message{&s.IO.Sent, &s.IO.Replay, &s.IO.Queued}
}

// sessionRecord is the record of a session, whose messages follow.
type sessionRecord struct {
	*Session
	lens [3]uint32 // of the lists of messages
}

func (s *sessionRecord) Layout(l *layout.Coder) {
	p := &s.Peer
	l.Fields(
		&p.Target, &p.Type, &p.Addrs, &p.Entity.Type, &p.Entity.ID, &p.Number, &s.PolicyName,
		&p.Dialled, &p.Near, &p.Anonymous, &p.Proven, &p.NumberKnown, &s.Once,
		&s.Policy.Server, &s.Policy.Standby, &s.Policy.ResetCheck, &s.Policy.Register,
		&s.Policy.Supported, &s.Policy.Required, &s.Features, &s.PeerGlobalSeq, &s.ConnectSeq,
		&s.Record.ClientCookie, &s.Record.ServerCookie, &s.Record.ToldSeq, &s.IO.InSeq, &s.IO.OutSeq,
		&s.Record.Told, &s.Record.Opened, &s.lens[0], &s.lens[1], &s.lens[2],
	)
}

// check says why the record that was read cannot be one of a session.
func (s *sessionRecord) check() error {
	for _, n := range s.lens {
		if n > messagesMax {
			return Errorf("%d messages", n)
		}
	}
	if uint64(s.lens[0]) > s.IO.OutSeq {
		return Errorf("%d sent messages, and the last one has sequence %d", s.lens[0], s.IO.OutSeq)
	}
	if s.Peer.Target.IsBlank() {
		return Errorf("session without an address")
	}
	return nil
}

// Write writes the session and its messages into a buffer, and returns their
// number.
func (s *Session) Write(w writer) (n uint64, err error) {
	rec := sessionRecord{Session: s}
	for i, list := range s.messages() {
		if len(*list) > messagesMax {
			return 0, Errorf("session with %d messages", len(*list))
		}
		rec.lens[i] = uint32(len(*list))
	}
	if err := writeRecord(w, recordSession, func(p []byte) []byte { return layout.Append(p, &rec) }); err != nil {
		return 0, err
	}
	for _, list := range s.messages() {
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
	rec := sessionRecord{Session: &s}
	if err = decode(p, recordSession, &rec); err == nil {
		err = rec.check()
	}
	if err != nil {
		return s, 0, err
	}
	for i, list := range s.messages() {
		for range rec.lens[i] {
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
			if err := decode(p, recordDone, &d); err != nil {
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
