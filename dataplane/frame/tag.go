package frame

import "strconv"

// Tag is the type of a frame (Ceph's frames_v2.h). A Decoder refuses unknown
// tags; when a known one is legal is up to the state machine above.
type Tag uint8

// Tags of messenger v2.
const (
	TagHello                Tag = 1
	TagAuthRequest          Tag = 2
	TagAuthBadMethod        Tag = 3
	TagAuthReplyMore        Tag = 4
	TagAuthRequestMore      Tag = 5
	TagAuthDone             Tag = 6
	TagAuthSignature        Tag = 7
	TagClientIdent          Tag = 8
	TagServerIdent          Tag = 9
	TagIdentMissingFeatures Tag = 10
	TagSessionReconnect     Tag = 11
	TagSessionReset         Tag = 12
	TagSessionRetry         Tag = 13
	TagSessionRetryGlobal   Tag = 14
	TagSessionReconnectOK   Tag = 15
	TagWait                 Tag = 16
	TagMessage              Tag = 17
	TagKeepalive2           Tag = 18
	TagKeepalive2Ack        Tag = 19
	TagAck                  Tag = 20
	TagCompressionRequest   Tag = 21
	TagCompressionDone      Tag = 22
)

var tagNames = [...]string{
	TagHello:                "HELLO",
	TagAuthRequest:          "AUTH_REQUEST",
	TagAuthBadMethod:        "AUTH_BAD_METHOD",
	TagAuthReplyMore:        "AUTH_REPLY_MORE",
	TagAuthRequestMore:      "AUTH_REQUEST_MORE",
	TagAuthDone:             "AUTH_DONE",
	TagAuthSignature:        "AUTH_SIGNATURE",
	TagClientIdent:          "CLIENT_IDENT",
	TagServerIdent:          "SERVER_IDENT",
	TagIdentMissingFeatures: "IDENT_MISSING_FEATURES",
	TagSessionReconnect:     "SESSION_RECONNECT",
	TagSessionReset:         "SESSION_RESET",
	TagSessionRetry:         "SESSION_RETRY",
	TagSessionRetryGlobal:   "SESSION_RETRY_GLOBAL",
	TagSessionReconnectOK:   "SESSION_RECONNECT_OK",
	TagWait:                 "WAIT",
	TagMessage:              "MESSAGE",
	TagKeepalive2:           "KEEPALIVE2",
	TagKeepalive2Ack:        "KEEPALIVE2_ACK",
	TagAck:                  "ACK",
	TagCompressionRequest:   "COMPRESSION_REQUEST",
	TagCompressionDone:      "COMPRESSION_DONE",
}

// Known tells whether the protocol defines t.
func (t Tag) Known() bool { return t >= TagHello && t <= TagCompressionDone }

// String is the protocol's name of t, or "tag N" for an undefined one.
func (t Tag) String() string {
	if t.Known() {
		return tagNames[t]
	}
	return "tag " + strconv.Itoa(int(t))
}

// Revision is the framing revision that the banners agreed on (Ceph's ProtocolV2.cc).
type Revision uint8

// Revisions of the framing.
const (
	Rev0 Revision = 0 // msgr2.0
	Rev1 Revision = 1 // msgr2.1
)

// String is the name of the protocol with this framing.
func (r Revision) String() string {
	switch r {
	case Rev0:
		return "msgr2.0"
	case Rev1:
		return "msgr2.1"
	}
	return "msgr2 revision " + strconv.Itoa(int(r))
}
