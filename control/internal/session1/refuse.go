package session1

import (
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The refusals of an acceptor before it looks for a session (msgr1.md, section 8, rows 1 to 4).
// The peer may connect again on the same socket.

// Refuse is the tag with which a connect message is refused for its contents, 0 if it is not
// refused. It does not look at the authorizer. required are the features that the acceptor
// needs, protocol is wire1.Protocol of the two types.
func Refuse(c *wire1.Connect, required wire.Features, protocol uint32) wire1.Tag {
	switch {
	case c.Protocol != protocol: // row 1
		return wire1.TagBadProtoVer
	case c.Features.Missing(required) != 0: // row 2
		return wire1.TagFeatures
	}
	return 0
}

// refusal is Refuse with the authorizer.
func (s *Session) refusal(a *Asked) wire1.Tag {
	if tag := Refuse(&a.Connect, s.Policy.Required|a.Required, s.protocol()); tag != 0 {
		return tag
	}
	switch a.Authorizer {
	case AuthorizerGood:
		return 0
	case AuthorizerChallenge: // row 4
		return wire1.TagChallengeAuthorizer
	default: // row 3
		return wire1.TagBadAuthorizer
	}
}

// protocol is the version that both must have when the peer is the connector.
func (s *Session) protocol() uint32 { return wire1.Protocol(s.Peer.Type, s.own) }

// tell answers with a reply after which the peer may send another connect message.
func (s *Session) tell(r *session.Run, a *Asked, reply wire1.Reply) {
	required := s.Policy.Required | a.Required
	reply.Features = a.Features&s.Policy.Supported | required
	reply.Protocol = s.protocol()
	s.due = dueConnect
	r.Do(session.Send{Frame: Answer{Reply: reply}})
}
