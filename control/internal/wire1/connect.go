package wire1

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/layout"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// The features that matter in msgr1 alone.
const (
	featureNoSrcAddr      wire.Features = 1 << 1 // the short message header
	FeatureReconnectSeq   wire.Features = 1 << 6
	FeatureMsgAuth        wire.Features = 1 << 23 // room for signatures
	featureMsgrKeepalive2 wire.Features = 1 << 42
	FeatureCephxV2        wire.Features = 1 << 61 // challenges, and the second form of signatures
)

// FormOf is the form of frames between two sides that both have these features.
func FormOf(both wire.Features) frame1.Form {
	return frame1.Form{
		OldHeader:    !both.Has(featureNoSrcAddr),
		OldFooter:    !both.Has(FeatureMsgAuth),
		OldKeepalive: !both.Has(featureMsgrKeepalive2),
	}
}

// Bounds of what follows connect and reply, in bytes. They are far above what is ever
// needed.
const (
	MaxAuthorizer = frame.MaxAuthFrame
	MaxAuthReply  = 4095 // more is an error in the protocol text
)

// FlagLossy says that the session does not outlive the connection. The acceptor's
// decides, the connector's is advice.
const FlagLossy uint8 = 1 << 0

// historicFeatures are what bit 63 stands for.
const (
	historicFeatures wire.Features = 0x1ffffffff
	historicBit      wire.Features = 1 << 63
)

// Connect is the request of a connector. AuthorizerLen bytes follow it.
type Connect struct {
	Features      wire.Features // that the connector supports
	HostType      wire.EntityType
	GlobalSeq     uint32 // number of the attempt
	ConnectSeq    uint32 // of the session; 0: a fresh one
	Protocol      uint32 // Protocol
	AuthMethod    uint32 // 0 without an authorizer
	AuthorizerLen uint32
	Flags         uint8 // FlagLossy
}

// Layout implements [layout.Structure].
func (c *Connect) Layout(l *layout.Coder) {
	host := uint32(c.HostType)
	features(l, &c.Features)
	l.Fields(&host, &c.GlobalSeq, &c.ConnectSeq, &c.Protocol, &c.AuthMethod, &c.AuthorizerLen, &c.Flags)
	if c.HostType = wire.EntityType(host); host > 0xff {
		l.Reader().Fail(fmt.Errorf("%w: host type 0x%x", wire.ErrMalformed, host)) // only one that is read can be
	}
}

// AppendTo appends all [ConnectSize] bytes.
func (c Connect) AppendTo(dst []byte) []byte { return layout.Append(dst, &c) }

// DecodeConnect reads all [ConnectSize] bytes. A type that does not fit into one byte and an
// authorizer longer than [MaxAuthorizer] are malformed.
func DecodeConnect(p []byte) (c Connect, err error) {
	r := wire.NewReader(p)
	layout.Read(r, &c)
	if c.AuthorizerLen > MaxAuthorizer {
		r.Fail(fmt.Errorf("%w: authorizer of %d bytes, limit %d", wire.ErrMalformed, c.AuthorizerLen, MaxAuthorizer))
	}
	return c, wrap("connect", r.Err())
}

// Lossy says whether the flag is set.
func (c *Connect) Lossy() bool { return c.Flags&FlagLossy != 0 }

// String is the message with its fields, but for the features.
func (c Connect) String() string {
	return fmt.Sprintf("CONNECT type=%v global_seq=%d connect_seq=%d protocol=%d%s",
		c.HostType, c.GlobalSeq, c.ConnectSeq, c.Protocol, lossyText(c.Flags))
}

// Tag is the answer to a connect message.
type Tag uint8

// The answers.
const (
	TagReady               Tag = 1  // the connection is open
	TagResetSession        Tag = 2  // the acceptor does not know the session
	TagWait                Tag = 3  // its own attempt goes on
	TagRetrySession        Tag = 4  // connect_seq is too low
	TagRetryGlobal         Tag = 5  // global_seq is too low, or the session is being replaced
	TagBadProtoVer         Tag = 10 // another protocol version
	TagBadAuthorizer       Tag = 11 // no authorizer, or a wrong one
	TagFeatures            Tag = 12 // the connector lacks features
	TagSeq                 Tag = 13 // READY; the exchange of sequences follows
	TagChallengeAuthorizer Tag = 16 // the authorizer is to be extended
)

var tagNames = map[Tag]string{
	TagReady: "READY", TagResetSession: "RESETSESSION", TagWait: "WAIT", TagRetrySession: "RETRY_SESSION",
	TagRetryGlobal: "RETRY_GLOBAL", TagBadProtoVer: "BADPROTOVER", TagBadAuthorizer: "BADAUTHORIZER",
	TagFeatures: "FEATURES", TagSeq: "SEQ", TagChallengeAuthorizer: "CHALLENGE_AUTHORIZER",
}

// String is the name in the protocol text.
func (t Tag) String() string {
	if name, ok := tagNames[t]; ok {
		return name
	}
	return fmt.Sprintf("tag(%d)", uint8(t))
}

// Reply is the answer to [Connect]. AuthorizerLen bytes follow it, and behind them,
// with [TagSeq], a [Seq].
type Reply struct {
	Tag           Tag
	Features      wire.Features
	GlobalSeq     uint32
	ConnectSeq    uint32
	Protocol      uint32
	AuthorizerLen uint32
	Flags         uint8 // FlagLossy
}

// Layout implements [layout.Structure].
func (a *Reply) Layout(l *layout.Coder) {
	l.Fields((*uint8)(&a.Tag))
	features(l, &a.Features)
	l.Fields(&a.GlobalSeq, &a.ConnectSeq, &a.Protocol, &a.AuthorizerLen, &a.Flags)
}

// AppendTo appends all [ReplySize] bytes.
func (a Reply) AppendTo(dst []byte) []byte { return layout.Append(dst, &a) }

// DecodeReply reads all [ReplySize] bytes. A tag that is no answer is malformed, and so
// are more than [MaxAuthReply] bytes behind the reply.
func DecodeReply(p []byte) (a Reply, err error) {
	r := wire.NewReader(p)
	layout.Read(r, &a)
	if _, known := tagNames[a.Tag]; !known && r.Err() == nil {
		r.Fail(fmt.Errorf("%w: %v in answer to connect", wire.ErrMalformed, a.Tag))
	}
	if a.AuthorizerLen > MaxAuthReply {
		r.Fail(fmt.Errorf("%w: authorizer reply of %d bytes, limit %d", wire.ErrMalformed, a.AuthorizerLen, MaxAuthReply))
	}
	return a, wrap("connect reply", r.Err())
}

// Lossy says whether the flag is set.
func (a *Reply) Lossy() bool { return a.Flags&FlagLossy != 0 }

// String is the reply with its fields, but for the features.
func (a Reply) String() string {
	return fmt.Sprintf("%v global_seq=%d connect_seq=%d protocol=%d", a.Tag, a.GlobalSeq, a.ConnectSeq, a.Protocol) + lossyText(a.Flags)
}

// Seq is what both sides tell behind [TagSeq]: the highest sequence that they have
// received in the session.
type Seq struct{ Received uint64 }

// AppendTo appends all [SeqSize] bytes.
func (s Seq) AppendTo(dst []byte) []byte { return le.AppendUint64(dst, s.Received) }

// DecodeSeq reads all [SeqSize] bytes.
func DecodeSeq(p []byte) (Seq, error) {
	r := wire.NewReader(p)
	s := Seq{Received: r.U64()}
	return s, wrap("sequence", r.Err())
}

// String is the sequence in words.
func (s Seq) String() string { return fmt.Sprintf("received=%d", s.Received) }

func lossyText(flags uint8) string {
	if flags&FlagLossy != 0 {
		return " lossy"
	}
	return ""
}

// features is a set of features. Bit 63 of one that is read stands for those of before it.
func features(l *layout.Coder, f *wire.Features) {
	if l.Fields(f); l.Reader() != nil && *f&historicBit != 0 {
		*f = historicFeatures
	}
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("decode %s: %w", what, err)
}

var le = binary.LittleEndian

// Sizes, in bytes.
const (
	BannerSize  = len(wire2.Msgr1Banner)
	AddrSize    = 136 // the legacy form
	ConnectSize = 33  // without the authorizer
	ReplySize   = 26  // without the authorizer
	SeqSize     = 8

	// AcceptorHelloSize is what an acceptor begins with, ConnectorHelloSize what a
	// connector does.
	AcceptorHelloSize  = BannerSize + 2*AddrSize
	ConnectorHelloSize = BannerSize + AddrSize
)

// CheckBanner returns a [*wire2.BannerError], which wraps [wire.ErrBadBanner], as soon as got, the first
// bytes of a connection as far as they have come, can be no banner of msgr1.
func CheckBanner(got []byte) error {
	n := min(len(got), BannerSize)
	if string(got[:n]) == wire2.Msgr1Banner[:n] {
		return nil
	}
	speech := wire2.MatchBanner(got)
	if speech == wire2.SpeechBanner {
		speech = wire2.SpeechMsgr2
	}
	return &wire2.BannerError{Speech: speech, Got: bytes.Clone(got[:n])}
}

// AcceptorHello is the first message of an acceptor, which it sends at once.
type AcceptorHello struct {
	Own  wire.Addr // its own address
	Seen wire.Addr // the connector's, as the socket has it
}

// AppendTo appends the hello, with the banner.
func (h AcceptorHello) AppendTo(dst []byte) []byte {
	return h.Seen.AppendLegacyTo(h.Own.AppendLegacyTo(append(dst, wire2.Msgr1Banner...)))
}

// DecodeAcceptorHello reads all [AcceptorHelloSize] bytes.
func DecodeAcceptorHello(p []byte) (h AcceptorHello, err error) {
	if p, err = behindBanner(p, AcceptorHelloSize); err != nil {
		return h, err
	}
	if h.Own, err = DecodeAddr(p[:AddrSize]); err != nil {
		return h, err
	}
	h.Seen, err = DecodeAddr(p[AddrSize:])
	return h, err
}

// ConnectorHello is the banner of a connector, and its own address behind it: port 0
// if it is not bound, and perhaps without an IP.
type ConnectorHello struct{ Own wire.Addr }

// AppendTo appends the hello, with the banner.
func (h ConnectorHello) AppendTo(dst []byte) []byte {
	return h.Own.AppendLegacyTo(append(dst, wire2.Msgr1Banner...))
}

// DecodeConnectorHello reads all [ConnectorHelloSize] bytes.
func DecodeConnectorHello(p []byte) (h ConnectorHello, err error) {
	if p, err = behindBanner(p, ConnectorHelloSize); err != nil {
		return h, err
	}
	h.Own, err = DecodeAddr(p)
	return h, err
}

func behindBanner(p []byte, size int) ([]byte, error) {
	if err := CheckBanner(p); err != nil {
		return nil, err
	}
	if len(p) != size {
		return nil, fmt.Errorf("decode hello: %w: %d bytes of %d", wire.ErrTruncated, len(p), size)
	}
	return p[BannerSize:], nil
}

// DecodeAddr reads an address in the legacy form, the only one of the handshake. Its
// type is [wire.AddrLegacy], or [wire.AddrNone] if it has no address family.
func DecodeAddr(p []byte) (wire.Addr, error) {
	if len(p) != AddrSize {
		return wire.Addr{}, fmt.Errorf("decode address: %w: %d bytes", wire.ErrTruncated, len(p))
	}
	if p[0] != 0 {
		return wire.Addr{}, fmt.Errorf("decode address: %w: form %d", wire.ErrMalformed, p[0])
	}
	a, err := wire.DecodeAddr(p)
	if err == nil && !a.AddrPort.Addr().IsValid() {
		a.Type = wire.AddrNone
	}
	return a, err
}

// protocols are the protocol versions of acceptors (Ceph's msgr.h): towards their own type, and
// towards others. Other types have none.
var protocols = map[wire.EntityType]struct{ own, others uint32 }{
	wire.Mon: {13, 15},
	wire.OSD: {10, 24},
	wire.MDS: {36, 32},
}

// Protocol is the protocol version that a connector and an acceptor of these types
// must agree on: among daemons of one type that of their own protocol, else that of the
// acceptor's type. Unequal numbers end in BADPROTOVER.
func Protocol(connector, acceptor wire.EntityType) uint32 {
	if connector == acceptor {
		return protocols[acceptor].own
	}
	return protocols[acceptor].others
}
