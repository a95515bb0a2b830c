package trace

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// DefaultCut is the number of recorded bytes of front, of middle and of data.
const DefaultCut = 16

// segments are the segments of one frame, in clear.
type segments = [frame.MaxSegments][]byte

// describe2 fills in r for a frame of msgr2: tag, lengths, fields, and the first cut bytes of
// front, of middle and of data. It keeps no memory of seg. For a malformed frame it sets
// Error.
func (r *Record) describe2(tag frame.Tag, seg *segments, cut int) {
	r.Event, r.Tag = Frame, tag.String()
	n := 1
	for i := range seg {
		if len(seg[i]) > 0 {
			n = i + 1
		}
	}
	r.Segments = make([]int, n)
	for i := range n {
		r.Segments[i] = len(seg[i])
	}
	if r.Aborted {
		return
	}
	var err error
	if r.Fields, err = describe(tag, seg[0]); err != nil {
		r.Fields, r.Error = nil, err.Error()
		return
	}
	if tag == frame.TagMessage {
		r.Payload = cutAll(seg[1:], cut)
	}
}

// cutAll is the beginning of each segment in hex.
func cutAll(segs [][]byte, cut int) []string {
	n := 0
	for i, s := range segs {
		if len(s) > 0 {
			n = i + 1
		}
	}
	if n == 0 || cut <= 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = hex.EncodeToString(segs[i][:min(cut, len(segs[i]))])
	}
	return out
}

// cutPayload is Payload for the three parts of a message.
func cutPayload(front, middle, data []byte, cut int) []string {
	return cutAll([][]byte{front, middle, data}, cut)
}

// describe decodes the payload of a control frame, or the header of a message.
func describe(tag frame.Tag, p []byte) (any, error) {
	switch tag {
	case frame.TagHello:
		h, err := wire2.DecodeHello(p)
		return &Hello{h.EntityType.String(), h.PeerAddr}, err
	case frame.TagAuthRequest:
		a, err := wire2.DecodeAuthRequest(p)
		return &AuthRequest{method(a.Method), modes(a.PreferredModes), len(a.Payload)}, err
	case frame.TagAuthBadMethod:
		a, err := wire2.DecodeAuthBadMethod(p)
		methods := make([]string, len(a.AllowedMethods))
		for i, m := range a.AllowedMethods {
			methods[i] = method(m)
		}
		return &AuthBadMethod{method(a.Method), a.Result, methods, modes(a.AllowedModes)}, err
	case frame.TagAuthReplyMore, frame.TagAuthRequestMore:
		a, err := wire2.DecodeAuthMore(p)
		return &authMore{len(a.Payload)}, err
	case frame.TagAuthDone:
		a, err := wire2.DecodeAuthDone(p)
		return &AuthDone{a.GlobalID, auth.Mode(a.Mode).String(), len(a.Payload)}, err
	case frame.TagAuthSignature:
		a, err := wire2.DecodeAuthSignature(p)
		return &AuthSignature{a != wire2.AuthSignature{}}, err
	case frame.TagCompressionRequest:
		c, err := wire2.DecodeCompressionRequest(p)
		methods := make([]string, len(c.Preferred))
		for i, m := range c.Preferred {
			methods[i] = wire.CompressionMethod(m).String()
		}
		return &compressionRequest{c.Compress, methods}, err
	case frame.TagCompressionDone:
		c, err := wire2.DecodeCompressionDone(p)
		return &CompressionDone{c.Compress, wire.CompressionMethod(c.Method).String()}, err
	case frame.TagMessage:
		h, err := frame.ParseMessageHeader(p)
		return &Message{Seq: h.Seq, TID: h.TID, Type: h.Type, Priority: h.Priority, Version: h.Version, Compat: h.CompatVersion, AckSeq: h.AckSeq}, err
	case frame.TagAck:
		r := wire.NewReader(p)
		return &Ack{r.U64()}, r.Err()
	case frame.TagKeepalive2, frame.TagKeepalive2Ack:
		if len(p) < 8 {
			return nil, fmt.Errorf("%w: keepalive of %d bytes", wire.ErrTruncated, len(p))
		}
		return &Keepalive{stampTime([8]byte(p))}, nil
	}
	return describeSession(tag, p)
}

// describeSession decodes the frames that open and resume sessions.
func describeSession(tag frame.Tag, p []byte) (any, error) {
	switch tag {
	case frame.TagClientIdent:
		c, err := wire2.DecodeClientIdent(p)
		return &ClientIdent{c.Addrs, c.TargetAddr, c.GID, c.GlobalSeq, c.Supported, c.Required, c.Flags&wire.IdentLossy != 0, c.Cookie}, err
	case frame.TagServerIdent:
		s, err := wire2.DecodeServerIdent(p)
		return &ServerIdent{s.Addrs, s.GID, s.GlobalSeq, s.Supported, s.Required, s.Flags&wire.IdentLossy != 0, s.Cookie}, err
	case frame.TagIdentMissingFeatures:
		m, err := wire2.DecodeIdentMissingFeatures(p)
		return &MissingFeatures{m.Features}, err
	case frame.TagSessionReconnect:
		s, err := wire2.DecodeSessionReconnect(p)
		return &Reconnect{s.Addrs, s.ClientCookie, s.ServerCookie, s.GlobalSeq, s.ConnectSeq, s.MsgSeq}, err
	case frame.TagSessionReconnectOK:
		s, err := wire2.DecodeSessionReconnectOK(p)
		return &ReconnectOK{s.MsgSeq}, err
	case frame.TagSessionRetry:
		s, err := wire2.DecodeSessionRetry(p)
		return &Retry{s.ConnectSeq}, err
	case frame.TagSessionRetryGlobal:
		s, err := wire2.DecodeSessionRetryGlobal(p)
		return &RetryGlobal{s.GlobalSeq}, err
	case frame.TagSessionReset:
		s, err := wire2.DecodeSessionReset(p)
		return &Reset{s.Full}, err
	}
	return nil, nil // WAIT, or a tag of a later version
}

func method(m uint32) string { return auth.Method(m).String() }

func modes(list []uint32) []string {
	out := make([]string, len(list))
	for i, m := range list {
		out[i] = auth.Mode(m).String()
	}
	return out
}

// stampTime is the time of a keepalive, the zero time for zeros.
func stampTime(p [8]byte) time.Time {
	sec, nsec := binary.LittleEndian.Uint32(p[:]), binary.LittleEndian.Uint32(p[4:])
	if sec == 0 && nsec == 0 {
		return time.Time{}
	}
	return time.Unix(int64(sec), int64(nsec)).UTC()
}
