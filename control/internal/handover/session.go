package handover

import (
	"bufio"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

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
