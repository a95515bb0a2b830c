package session1

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The frames of a session are [Answer], [Asked], wire1.Connect and wire1.Seq. The next event after
// a frame is the peer's next one; after an [Answer] with READY, or a wire1.Seq, it is session.Sent.

// Answer is the frame with which an acceptor answers: a reply, and with wire1.TagSeq the number
// of the last message that the acceptor has received. The machine does not look at its
// authorizer bytes.
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

// Authorizer is the verdict about the authorizer of a connect message.
type Authorizer uint8

// The verdicts.
const (
	AuthorizerGood      Authorizer = iota // it is valid, or none is needed
	AuthorizerBad                         // it is missing or wrong
	AuthorizerChallenge                   // it has to be extended first
)

// Asked is the frame with which a connector asks: a connect message, with the verdict about its
// authorizer.
type Asked struct {
	wire1.Connect
	Authorizer Authorizer
	// Required are the features that the authorizer's method needs beside those of the
	// policy: CEPHX_V2 and MSG_AUTH, if cephx is configured so.
	Required wire.Features
}

// ErrBadAuthorizer: the peer does not accept our authorizer, even a fresh one.
var ErrBadAuthorizer = errors.New("control: authorizer refused")
