package nodetest

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Point is a place at which a connection can be disturbed: a step that is
// about to happen (Ceph's Interceptor.h). Points of frames exist for every tag, in
// the handshake and in the data phase.
type Point = probe.Point

// SocketConnecting is the moment before a connector dials.
func SocketConnecting() Point { return Point{Step: probe.SocketConnecting} }

// SocketAccepted is the moment after a socket was accepted.
func SocketAccepted() Point { return Point{Step: probe.SocketAccepted} }

// BannerWrite is the own banner.
func BannerWrite() Point { return Point{Step: probe.BannerWrite} }

// BannerRead is the fixed part of the peer's banner.
func BannerRead() Point { return Point{Step: probe.BannerRead} }

// BannerPayloadRead is the rest of the peer's banner.
func BannerPayloadRead() Point { return Point{Step: probe.BannerPayloadRead} }

// Write is a frame that is written.
func Write(tag frame.Tag) Point { return Point{Step: probe.FrameWrite, Tag: tag} }

// Read is a frame that is read. It is reached when the frame's head has
// arrived, as its tag is not known before.
func Read(tag frame.Tag) Point { return Point{Step: probe.FrameRead, Tag: tag} }

var stepNames = map[probe.Step]string{
	probe.SocketConnecting:  "SOCKET_CONNECTING",
	probe.SocketAccepted:    "SOCKET_ACCEPTED",
	probe.BannerWrite:       "BANNER_WRITE",
	probe.BannerRead:        "BANNER_READ",
	probe.BannerPayloadRead: "BANNER_PAYLOAD_READ",
	probe.ConnectWrite:      "CONNECT_WRITE",
	probe.ConnectRead:       "CONNECT_READ",
	probe.ReplyWrite:        "REPLY_WRITE",
	probe.ReplyRead:         "REPLY_READ",
	probe.SeqWrite:          "SEQ_WRITE",
	probe.SeqRead:           "SEQ_READ",
}

// PointName is the name of a point, such as "SOCKET_CONNECTING" or
// "CLIENT_IDENT_WRITE".
func PointName(p Point) string {
	switch p.Step {
	case probe.FrameWrite:
		return p.Tag.String() + "_WRITE"
	case probe.FrameRead:
		return p.Tag.String() + "_READ"
	}
	return stepNames[p.Step]
}

// MustPoint is the inverse of PointName, for names that are known to be right: it panics on
// others.
func MustPoint(name string) Point {
	for step, n := range stepNames {
		if n == name {
			return Point{Step: step}
		}
	}
	for tag := frame.TagHello; tag.Known(); tag++ {
		switch name {
		case tag.String() + "_WRITE":
			return Write(tag)
		case tag.String() + "_READ":
			return Read(tag)
		}
	}
	panic(fmt.Sprintf("nodetest: no break point %q", name))
}

// Role is a side of one TCP connection.
type Role uint8

// The roles.
const (
	Connector Role = iota
	Acceptor
)

func (r Role) String() string {
	if r == Acceptor {
		return "acceptor"
	}
	return "connector"
}

// HandshakePoints are the points that a side passes in a handshake without a
// session before it, in order, with authentication that takes one round.
func HandshakePoints(r Role) []Point {
	if r == Acceptor {
		return []Point{
			SocketAccepted(), BannerWrite(), BannerRead(), BannerPayloadRead(), Write(frame.TagHello), Read(frame.TagHello),
			Read(frame.TagAuthRequest), Write(frame.TagAuthDone), Write(frame.TagAuthSignature), Read(frame.TagAuthSignature),
			Read(frame.TagClientIdent), Write(frame.TagServerIdent),
		}
	}
	return []Point{
		SocketConnecting(), BannerWrite(), BannerRead(), BannerPayloadRead(), Write(frame.TagHello), Read(frame.TagHello),
		Write(frame.TagAuthRequest), Read(frame.TagAuthDone), Write(frame.TagAuthSignature), Read(frame.TagAuthSignature),
		Write(frame.TagClientIdent), Read(frame.TagServerIdent),
	}
}

// HandshakePoints1 are the points that a side passes in a handshake of msgr1 that opens
// or resumes a session, in order.
func HandshakePoints1(r Role) []Point {
	steps := []probe.Step{
		probe.SocketConnecting, probe.BannerRead, probe.BannerPayloadRead, probe.BannerWrite, probe.ConnectWrite, probe.ReplyRead, probe.SeqWrite,
	}
	if r == Acceptor {
		steps = []probe.Step{
			probe.SocketAccepted, probe.BannerWrite, probe.BannerRead, probe.BannerPayloadRead, probe.ConnectRead, probe.ReplyWrite, probe.SeqRead,
		}
	}
	points := make([]Point, len(steps))
	for i, s := range steps {
		points[i] = Point{Step: s}
	}
	return points
}

// ReconnectPoints are the points of a handshake that resumes a session and
// that differ from those of HandshakePoints.
func ReconnectPoints(r Role) []Point {
	if r == Acceptor {
		return []Point{Read(frame.TagSessionReconnect), Write(frame.TagSessionReconnectOK)}
	}
	return []Point{Write(frame.TagSessionReconnect), Read(frame.TagSessionReconnectOK)}
}

// DataPoints are the points of the data phase. A lossy connection never
// reaches those of ACK.
func DataPoints() []Point {
	var out []Point
	for _, tag := range []frame.Tag{frame.TagMessage, frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack} {
		out = append(out, Write(tag), Read(tag))
	}
	return out
}
