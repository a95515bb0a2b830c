package handover

import (
	"bufio"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Session is one lossless session without its socket.
type Session struct {
	Target      wire.Addr // whom to dial; never blank
	Dialled     bool      // Target was asked for, else the peer says that it is there
	Near        bool      // the peer that claimed the address came from its IP
	Anonymous   bool
	Once        bool
	PeerType    wire.EntityType
	PeerAddrs   wire.AddrVec
	PeerEntity  wire.EntityName
	Proven      bool // PeerEntity is proven, not only said
	PeerNumber  int64
	NumberKnown bool

	// The policy that it was made under, without its throttles.
	Policy              string
	Server, Standby     bool
	ResetCheck          bool
	Register            bool
	Supported, Required wire.Features

	ClientCookie, ServerCookie uint64
	PeerGlobalSeq, ConnectSeq  uint64
	ToldSeq                    uint64   // our global_seq in our SERVER_IDENT, in msgr1 OpenedSeq; 0: none is known
	Told                       []uint32 // msgr1: the numbers of all replies of which the peer may have one on record
	OpenedSeq                  uint32   // msgr1: the one of Told that has opened the session last
	Features                   wire.Features

	IO dataplane.HandlerState // its owner releases it
}

// A later version of this package may only append fields to a record: an older reader
// ignores them, and a newer reader that misses them takes their defaults. So the version
// of the conversation stays.

// The bits after the numbers of messages. Records of older processes end before them.
const (
	bitDialled = 1 << iota
	bitProven
	bitNear
)

// appendTo appends all but the messages.
func (s *Session) appendTo(dst []byte) []byte {
	dst = s.Target.AppendTo(dst)
	for _, b := range []bool{s.Anonymous, s.Once, s.NumberKnown, s.Server, s.Standby, s.ResetCheck, s.Register} {
		dst = wire.AppendBool(dst, b)
	}
	dst = append(dst, byte(s.PeerType))
	dst = s.PeerAddrs.AppendTo(dst)
	dst = appendEntity(dst, s.PeerEntity)
	dst = le.AppendUint64(dst, uint64(s.PeerNumber))
	dst = wire.AppendString(dst, s.Policy)
	for _, v := range []uint64{
		uint64(s.Supported), uint64(s.Required), s.ClientCookie, s.ServerCookie, s.PeerGlobalSeq, s.ConnectSeq,
		uint64(s.Features), s.IO.InSeq, s.IO.OutSeq,
	} {
		dst = le.AppendUint64(dst, v)
	}
	for _, list := range [3][]*dataplane.Message{s.IO.Sent, s.IO.Replay, s.IO.Queued} {
		dst = le.AppendUint32(dst, uint32(len(list)))
	}
	var bits byte
	if s.Dialled {
		bits |= bitDialled
	}
	if s.Proven {
		bits |= bitProven
	}
	if s.Near {
		bits |= bitNear
	}
	dst = le.AppendUint64(append(dst, bits), s.ToldSeq)
	dst = le.AppendUint32(dst, uint32(len(s.Told)))
	for _, seq := range s.Told {
		dst = le.AppendUint32(dst, seq)
	}
	return le.AppendUint32(dst, s.OpenedSeq)
}

// decodeSession is the other side of appendTo; lens are the numbers of messages
// that follow.
func decodeSession(p []byte) (s Session, lens [3]uint32, err error) {
	r := wire.NewReader(p)
	s.Target = r.Addr()
	for _, b := range []*bool{&s.Anonymous, &s.Once, &s.NumberKnown, &s.Server, &s.Standby, &s.ResetCheck, &s.Register} {
		*b = r.Bool()
	}
	s.PeerType = wire.EntityType(r.U8())
	s.PeerAddrs = r.AddrVec()
	s.PeerEntity = readEntity(r)
	s.PeerNumber = r.S64()
	s.Policy = r.Str()
	s.Supported, s.Required = wire.Features(r.U64()), wire.Features(r.U64())
	for _, v := range []*uint64{&s.ClientCookie, &s.ServerCookie, &s.PeerGlobalSeq, &s.ConnectSeq} {
		*v = r.U64()
	}
	s.Features = wire.Features(r.U64())
	s.IO.InSeq, s.IO.OutSeq = r.U64(), r.U64()
	for i := range lens {
		if lens[i] = r.U32(); lens[i] > messagesMax {
			r.Fail(Errorf("%d messages", lens[i]))
		}
	}
	if r.Len() > 0 {
		bits := r.U8()
		s.Dialled, s.Proven, s.Near = bits&bitDialled != 0, bits&bitProven != 0, bits&bitNear != 0
		s.ToldSeq = r.U64()
	} else {
		// Whom nobody knows by name has never come to us.
		s.Dialled = s.PeerEntity == (wire.EntityName{})
	}
	switch {
	case r.Len() > 0:
		s.Told, s.OpenedSeq = r.U32s(), r.U32()
	case s.ToldSeq > 0 && s.Target.Type == wire.AddrLegacy: // of a process that kept only one
		s.OpenedSeq = uint32(s.ToldSeq)
		s.Told = []uint32{s.OpenedSeq}
	}
	if uint64(lens[0]) > s.IO.OutSeq {
		r.Fail(Errorf("%d messages sent up to sequence %d", lens[0], s.IO.OutSeq))
	}
	if s.Target.IsBlank() {
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
	for _, list := range [3][]*dataplane.Message{s.IO.Sent, s.IO.Replay, s.IO.Queued} {
		if len(list) > messagesMax {
			return n, Errorf("session with %d messages", len(list))
		}
		for _, m := range list {
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
	for i, list := range [3]*[]*dataplane.Message{&s.IO.Sent, &s.IO.Replay, &s.IO.Queued} {
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
