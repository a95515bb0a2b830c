package control

import "github.com/ringmsgr/ringmsgr/control/wire"

// endedMax bounds each generation of endedSessions.
const endedMax = 1 << 15

// endedSessions remembers sessions that ended while handshakes were under way,
// with the last global_seq of the peer. A CLIENT_IDENT that is held up on one
// of those sockets would open another session under the client cookie of the
// ended one. The peer, which has gone on to a later socket and knows only the
// first, would resume it with sequences that belong to the other, and messages
// would be lost.
//
// No handshake outlives its deadline, so neither need this: what is in young
// when that time passes gets old, and what is old is forgotten. It belongs to
// a messenger, under its lock.
type endedSessions struct {
	young, old map[sessionName]uint64
	stop       func() bool // the timer's, nil while there is nothing
}

// sessionName is what a CLIENT_IDENT says of its session.
type sessionName struct {
	peer   wire.Addr
	cookie uint64 // of the client
}

// rememberEnd notes the end of c, if a handshake under way may be about its
// session. The lock is held.
func (m *Messenger) rememberEnd(c *Conn) {
	if c.policy.Lossy || c.serverCookie == 0 || m.down || m.halfOpen+int(m.arriving.Load()) == 0 {
		return
	}
	s := &m.ended
	if len(s.young) >= endedMax {
		s.age()
	}
	if s.young == nil {
		s.young = make(map[sessionName]uint64)
	}
	name := sessionName{c.peerAddrs.Front(), c.clientCookie}
	s.young[name] = max(c.peerGlobalSeq, s.young[name])
	if s.stop == nil {
		m.ageEndedSessions()
	}
}

// ageEndedSessions arms the timer. The lock is held.
func (m *Messenger) ageEndedSessions() {
	m.ended.stop = m.cfg.Clock.AfterFunc(m.cfg.HandshakeTimeout, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ended.age()
		m.ended.stop = nil
		if len(m.ended.old) > 0 && !m.down {
			m.ageEndedSessions()
		}
	})
}

func (s *endedSessions) age() { s.young, s.old = nil, s.young }

// overtook says whether a CLIENT_IDENT is older than the end of its session.
func (s *endedSessions) overtook(name sessionName, globalSeq uint64) bool {
	return globalSeq < max(s.young[name], s.old[name])
}

// forget ends the timer, for good.
func (s *endedSessions) forget() {
	if s.stop != nil {
		s.stop()
	}
	*s = endedSessions{}
}
