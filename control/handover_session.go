package control

import (
	"io"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// session is one lossless session without its socket.
type session struct {
	target     wire.Addr
	anonymous  bool
	once       bool
	peerType   wire.EntityType
	peerAddrs  wire.AddrVec
	peerEntity wire.EntityName
	peerNumber int64
	known      bool // peerNumber is

	policy             string
	server, standby    bool
	resetCheck         bool
	register           bool
	supported, require wire.Features

	clientCookie, serverCookie uint64
	peerGlobalSeq, connectSeq  uint64
	features                   wire.Features

	io dataplane.HandlerState
}

// appendTo appends all but the messages.
func (s *session) appendTo(dst []byte) []byte {
	dst = s.target.AppendTo(dst)
	for _, b := range []bool{s.anonymous, s.once, s.known, s.server, s.standby, s.resetCheck, s.register} {
		dst = wire.AppendBool(dst, b)
	}
	dst = append(dst, byte(s.peerType))
	dst = s.peerAddrs.AppendTo(dst)
	dst = appendEntity(dst, s.peerEntity)
	dst = le.AppendUint64(dst, uint64(s.peerNumber))
	dst = wire.AppendString(dst, s.policy)
	for _, v := range []uint64{
		uint64(s.supported), uint64(s.require), s.clientCookie, s.serverCookie, s.peerGlobalSeq, s.connectSeq,
		uint64(s.features), s.io.InSeq, s.io.OutSeq,
	} {
		dst = le.AppendUint64(dst, v)
	}
	for _, list := range [3][]*Message{s.io.Sent, s.io.Replay, s.io.Queued} {
		dst = le.AppendUint32(dst, uint32(len(list)))
	}
	return dst
}

// decodeSession is the other side of appendTo; lens are the numbers of messages
// that follow.
func decodeSession(p []byte) (s session, lens [3]uint32, err error) {
	r := wire.NewReader(p)
	s.target = r.Addr()
	for _, b := range []*bool{&s.anonymous, &s.once, &s.known, &s.server, &s.standby, &s.resetCheck, &s.register} {
		*b = r.Bool()
	}
	s.peerType = wire.EntityType(r.U8())
	s.peerAddrs = r.AddrVec()
	s.peerEntity = readEntity(r)
	s.peerNumber = r.S64()
	s.policy = r.Str()
	s.supported, s.require = wire.Features(r.U64()), wire.Features(r.U64())
	for _, v := range []*uint64{&s.clientCookie, &s.serverCookie, &s.peerGlobalSeq, &s.connectSeq} {
		*v = r.U64()
	}
	s.features = wire.Features(r.U64())
	s.io.InSeq, s.io.OutSeq = r.U64(), r.U64()
	for i := range lens {
		if lens[i] = r.U32(); lens[i] > messagesMax {
			r.Fail(badRecord("%d messages", lens[i]))
		}
	}
	if uint64(lens[0]) > s.io.OutSeq {
		r.Fail(badRecord("%d messages sent up to sequence %d", lens[0], s.io.OutSeq))
	}
	if s.target.IsBlank() {
		r.Fail(badRecord("session without an address"))
	}
	return s, lens, broken(recordSession, r)
}

// write writes the session and its messages and returns their number.
func (s *session) write(w io.Writer) (n uint64, err error) {
	if err := writeRecord(w, recordSession, s.appendTo(nil)); err != nil {
		return 0, err
	}
	for _, list := range [3][]*Message{s.io.Sent, s.io.Replay, s.io.Queued} {
		if len(list) > messagesMax {
			return n, badRecord("session with %d messages", len(list))
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

// readSession reads the messages of a session whose record is p.
func readSession(r io.Reader, p []byte) (s session, n uint64, err error) {
	s, lens, err := decodeSession(p)
	if err != nil {
		return s, 0, err
	}
	for i, list := range [3]*[]*Message{&s.io.Sent, &s.io.Replay, &s.io.Queued} {
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
func readSessions(r io.Reader) (list []session, d done, err error) {
	var messages uint64
	for {
		t, p, err := readRecord(r)
		if err != nil {
			return nil, d, badRecord("sessions: %w", noEOF(err))
		}
		switch t {
		case recordSession:
			if len(list) == sessionsMax {
				return nil, d, badRecord("more than %d sessions", sessionsMax)
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
			if d.sessions != uint32(len(list)) || d.messages != messages {
				return nil, d, badRecord("%d sessions with %d messages came, %d and %d were sent", len(list), messages, d.sessions, d.messages)
			}
			return list, d, nil
		case recordRefused:
			return nil, d, badRecord("refused by the other process: %.*q", textMax, p)
		default:
			return nil, d, badRecord("%v among the sessions", t)
		}
	}
}
