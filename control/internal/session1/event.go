package session1

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The events are those of package session, with these beside or in place of them:
//
//   - Request in place of session.Request: the frame of an accepted socket.
//   - session.Answer with the frames [Answer], [Asked] and wire1.Seq.
//   - session.Replace with the frame [Asked]; Reset as TakeOver says.
//   - Restore in place of session.Restore.
//
// The next event after [session.Send] is the peer's next frame; after an [Answer] with
// READY, or a wire1.Seq, it is session.Sent.

// Answer is the frame with which an acceptor answers: a reply, and with wire1.TagSeq
// what the acceptor has received behind it. Its authorizer bytes are not the machine's.
type Answer struct {
	wire1.Reply
	Received uint64
}

// String is the answer with its fields.
func (a Answer) String() string {
	if a.Tag == wire1.TagSeq {
		return fmt.Sprintf("%v received=%d", a.Reply, a.Received)
	}
	return a.Reply.String()
}

// Authorizer says what became of the authorizer of a connect message.
type Authorizer uint8

// What can become of it.
const (
	AuthorizerGood      Authorizer = iota // it is valid, or none is needed
	AuthorizerBad                         // it is missing or wrong
	AuthorizerChallenge                   // it has to be extended first
)

// Asked is the frame with which a connector asks: a connect message with what was made
// of its authorizer.
type Asked struct {
	wire1.Connect
	Authorizer Authorizer
	// Required are the features that the method of the authorizer needs beside those of
	// the policy: CEPHX_V2 and MSG_AUTH, if cephx is configured so.
	Required wire.Features
}

// Request says that a connect message has come on an accepted socket.
type Request struct {
	Asked
	From wire.Addr // the peer's address as it says, its IP filled in if that was blank
	Near bool      // the socket comes from that IP
	// Gone: the address that the peer was told is ours no more, and it may want nobody else.
	Gone bool
	// Existing is the connection under that address, nil for none. It is only read.
	Existing *Session
	// Foreign is that connection if it speaks another protocol; Existing is nil then.
	Foreign *session.Lifecycle
	// Settled: all handshakes that were under way when Existing got its numbers from its
	// peer have ended, so that this one is not older.
	Settled bool
	// Frozen: sessions stand still for a hand-over, or have left by one.
	Frozen bool
	// Refuse is why no connection may be made, nil if one may.
	Refuse error
}

// Restore brings a session of another process. It is stopped.
type Restore struct {
	PeerGlobalSeq, ConnectSeq uint64
	Told                      []uint32 // Session.Told, none if they are not known
	Opened                    uint32
	Features                  wire.Features
	IO                        session.Snapshot
}

// ErrClosed: the peer has said CLOSE on a connection that was open. The session ends.
var ErrClosed = errors.New("control: the peer has closed the connection")

// ErrBadAuthorizer: the peer does not accept our authorizer, even a fresh one.
var ErrBadAuthorizer = errors.New("control: authorizer refused")

func isClosed(err error) bool { return errors.Is(err, ErrClosed) }
