package control

import (
	"context"

	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// talk is a handshake that has come to the session, in the protocol of its socket. The
// goroutine of the attempt uses it until the connection is open.
type talk interface {
	// send sends what the machine says.
	send(ctx context.Context, f session.Frame) error
	// receive returns what the peer says, for the machine.
	receive(ctx context.Context) (session.Frame, error)
	// last says that an acceptor, or a connector of msgr1, does not wait for an answer to f.
	last(f session.Frame) bool
	// queues says that send does not wait.
	queues() bool
	// protocol is the name in statistics.
	protocol() string
	// Wipe overwrites the secrets of a handshake that has failed.
	Wipe()
	// release gives up the codecs, for a connection with these features.
	release(opt *dataplane.OpenOptions, features wire.Features) error
}

// msgr2Talk is the talk of msgr2.
type msgr2Talk struct {
	*handshake.Stream
	m    *Messenger
	peer *handshake.Peer
}

func (s msgr2Talk) send(ctx context.Context, f session.Frame) error {
	tag, payload := encode(s.Scratch(), f)
	return s.WriteFrame(ctx, tag, payload)
}

func (s msgr2Talk) receive(ctx context.Context) (session.Frame, error) {
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return nil, err
	}
	return decode(tag, payload)
}

func (s msgr2Talk) last(session.Frame) bool { return true }
func (s msgr2Talk) queues() bool            { return s.Queues() }
func (s msgr2Talk) protocol() string        { return s.peer.Revision.String() }

func (s msgr2Talk) release(opt *dataplane.OpenOptions, _ wire.Features) error {
	opt.Encoder, opt.Decoder = s.Release()
	opt.Decoder.SetLimits(s.m.cfg.Limits)
	s.m.compression.install(opt.Encoder, opt.Decoder, s.peer.Compression)
	return nil
}

// handshakeOptions are what both roles have in common.
func (m *Messenger) handshakeOptions(a *attempt) handshake.Options {
	return handshake.Options{
		EntityType: m.cfg.Name.Type, Rev0Only: m.cfg.Rev0, Modes: m.cfg.Modes, Compression: m.compression.negotiate,
		NoDataCRC: m.cfg.NoDataCRC, Probe: a.probe, Tap: a.tap, KeyLog: m.keyLog,
	}
}

// encode is a frame of the session on the wire; the payload may take the memory of dst.
func encode(dst []byte, f session.Frame) (frame.Tag, []byte) {
	switch f := f.(type) {
	case wire.ClientIdent:
		return frame.TagClientIdent, f.AppendTo(dst)
	case wire.ServerIdent:
		return frame.TagServerIdent, f.AppendTo(dst)
	case wire.IdentMissingFeatures:
		return frame.TagIdentMissingFeatures, f.AppendTo(dst)
	case wire.SessionReconnect:
		return frame.TagSessionReconnect, f.AppendTo(dst)
	case wire.SessionReconnectOK:
		return frame.TagSessionReconnectOK, f.AppendTo(dst)
	case wire.SessionRetry:
		return frame.TagSessionRetry, f.AppendTo(dst)
	case wire.SessionRetryGlobal:
		return frame.TagSessionRetryGlobal, f.AppendTo(dst)
	case wire.SessionReset:
		return frame.TagSessionReset, f.AppendTo(dst)
	default: // session.WaitFrame: the machine sends no other
		return frame.TagWait, nil
	}
}

// decode is the other side of encode.
func decode(tag frame.Tag, p []byte) (session.Frame, error) {
	switch tag {
	case frame.TagClientIdent:
		return decoded(wire.DecodeClientIdent(p))
	case frame.TagServerIdent:
		return decoded(wire.DecodeServerIdent(p))
	case frame.TagIdentMissingFeatures:
		return decoded(wire.DecodeIdentMissingFeatures(p))
	case frame.TagSessionReconnect:
		return decoded(wire.DecodeSessionReconnect(p))
	case frame.TagSessionReconnectOK:
		return decoded(wire.DecodeSessionReconnectOK(p))
	case frame.TagSessionRetry:
		return decoded(wire.DecodeSessionRetry(p))
	case frame.TagSessionRetryGlobal:
		return decoded(wire.DecodeSessionRetryGlobal(p))
	case frame.TagSessionReset:
		return decoded(wire.DecodeSessionReset(p))
	case frame.TagWait:
		return session.WaitFrame{}, nil
	}
	return session.OtherFrame{Name: tag.String()}, nil
}

func decoded[T any](f T, err error) (session.Frame, error) { return f, err }
