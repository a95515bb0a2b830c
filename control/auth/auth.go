package auth

import (
	"context"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Client makes the connector's side of authentication. There is one value per
// messenger identity; it is safe for concurrent use.
type Client interface {
	// Start returns the state of one connection attempt to a peer of the given type.
	// An error ends the attempt; the handshake reports it as terminal, because dialling
	// again would not change it.
	Start(ctx context.Context, peer wire.EntityType) (ClientExchange, error)
}

// ClientExchange is one connection attempt of the connector. It is used by one
// goroutine, and not again after an error or after Done.
type ClientExchange interface {
	// Request returns the content of the next AUTH_REQUEST: the method, the modes in
	// order of preference, and the payload of the method. It is called first, and once
	// more after each BadMethod that returned nil.
	Request(ctx context.Context) (Method, []Mode, []byte, error)
	// BadMethod reports that the acceptor refused method m of the last Request with result, a
	// negative errno, and lists the methods and modes that it allows for this peer. The list of
	// modes is not filtered by method (Ceph's ProtocolV2.cc). It returns nil if Request has another
	// offer; else an error wrapping [ErrNoMethod], [ErrNoMode] or [Refused].
	BadMethod(ctx context.Context, m Method, result int32, methods []Method, modes []Mode) error
	// ReplyMore takes the payload of AUTH_REPLY_MORE and returns the payload of the
	// AUTH_REQUEST_MORE that answers it.
	ReplyMore(ctx context.Context, payload []byte) ([]byte, error)
	// Done takes AUTH_DONE and returns the result. The handshake has verified before that mode
	// was offered in the last Request. SessionKey is empty for methods without one;
	// ConnectionSecret has at least [ConnectionSecretMin] bytes in mode [Secure].
	Done(ctx context.Context, globalID uint64, mode Mode, payload []byte) (*Result, error)
}

// Server makes the acceptor's side of authentication. There is one value per messenger
// identity; it is safe for concurrent use.
type Server interface {
	// Methods returns the methods allowed for peers of the given type, most preferred
	// first. The caller does not modify the slice.
	Methods(ctx context.Context, peer wire.EntityType) []Method
	// Modes returns the modes that peers of the given type may get with method m, and the
	// list that AUTH_BAD_METHOD announces, which real acceptors do not filter by method.
	// The caller does not modify the slices.
	Modes(ctx context.Context, peer wire.EntityType, m Method) (allowed, announced []Mode)
	// Start returns the state of one exchange, for which the handshake has accepted
	// method m and chosen mode. It is called again for each further AUTH_REQUEST on the
	// same TCP connection. Errors are treated like those of Handle.
	Start(ctx context.Context, peer wire.EntityType, m Method, mode Mode) (ServerExchange, error)
}

// ServerExchange is one exchange of the acceptor. It is used by one goroutine, and not
// again after an error or after it was done.
type ServerExchange interface {
	// Handle takes the payload of AUTH_REQUEST, then of each AUTH_REQUEST_MORE.
	//
	// With a result, the exchange is done: the handshake sends AUTH_DONE with
	// Result.GlobalID, Result.Mode and reply. Without one it sends reply in
	// AUTH_REPLY_MORE and waits for the next payload. An error refuses the peer: it is
	// sent AUTH_BAD_METHOD with [Errno] of the error and may try again on the same
	// connection, except that [ErrBusy] closes the connection without a frame.
	Handle(ctx context.Context, payload []byte) (reply []byte, res *Result, err error)
}

// Wiper is implemented by exchanges that hold secrets. The handshake calls Wipe exactly
// once per exchange, when it will not use the exchange any more.
type Wiper interface {
	// Wipe overwrites the secrets. It must not block.
	Wipe()
}

// ConnectionSecretMin is the least number of bytes of a connection secret that the
// ciphers of mode [Secure] can be made from: one key and two nonces (protocol section
// 5.8).
const ConnectionSecretMin = 16 + 12 + 12

// Result is the outcome of authentication, on both sides.
type Result struct {
	// SessionKey signs the handshake; empty for methods without a key.
	SessionKey []byte
	// ConnectionSecret keys the ciphers of mode [Secure]; not used in mode [CRC].
	ConnectionSecret []byte
	// GlobalID is the number that a monitor gave to the connector, or 0.
	GlobalID uint64
	// Entity is, on the acceptor, the name that the connector proved or, with method
	// none, claimed. On the connector it is the name under which it authenticated itself.
	Entity wire.EntityName
	// Mode protects the rest of the TCP connection.
	Mode Mode
	// Method is the method that succeeded.
	Method Method
	// Caps are the connector's capabilities, such as "allow rwx"; "" on the connector and for
	// methods without capabilities.
	Caps string
	// Session is, on the acceptor, the state of the method for later messages of the
	// connection, for example the *cephx.Session of a login; or nil.
	Session any
}

// Wipe overwrites the two secrets and drops them. It is safe on a nil Result and may be
// called more than once.
func (r *Result) Wipe() {
	if r == nil {
		return
	}
	clear(r.SessionKey)
	clear(r.ConnectionSecret)
	r.SessionKey, r.ConnectionSecret = nil, nil
}
