package cephx

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Errors of this package. Test for them with [errors.Is]. A payload that cannot be
// decoded gives an error that wraps [wire.ErrMalformed]. On the acceptor every one of
// them refuses the peer with [auth.EACCES], unless it also wraps an [auth.Refused].
var (
	// ErrKeyType means that a key is of a kind that is unknown, or not allowed here.
	ErrKeyType = errors.New("unsupported key type")
	// ErrNoKey means that a key is missing or was wiped.
	ErrNoKey = errors.New("no key")
	// ErrKeyring is wrapped by every [KeyringError].
	ErrKeyring = errors.New("invalid keyring")
	// ErrConfig means that a configuration makes no sense.
	ErrConfig = errors.New("invalid cephx configuration")
	// ErrWrongKey means that something could not be decrypted: it was made with another
	// key, or altered on the way.
	ErrWrongKey = errors.New("decryption failed, wrong key or altered data")
	// ErrProof means that a connector could not prove that it has the key of the entity
	// that it claims to be, or that there is no such entity.
	ErrProof = errors.New("entity not proven")
	// ErrServerProof means that an acceptor could not prove that it knows the session key.
	ErrServerProof = errors.New("acceptor did not prove the session key")
	// ErrChallenge means that the answer to a challenge is wrong, as that of a replayed
	// exchange is.
	ErrChallenge = errors.New("wrong answer to the challenge")
	// ErrReplayed means that a monitor's reply carries a session key that this client has
	// had before.
	ErrReplayed = errors.New("monitor's reply was seen before")
	// ErrNoTicket means that there is no valid ticket for a service. Log in to a monitor,
	// or renew the tickets.
	ErrNoTicket = errors.New("no valid ticket")
	// ErrTicketExpired means that a ticket is too old.
	ErrTicketExpired = errors.New("ticket expired")
	// ErrForeignTicket means that a ticket is for another service, or belongs to another
	// entity than the one that shows it.
	ErrForeignTicket = errors.New("ticket is for another service or entity")
	// ErrUnknownSecret means that a ticket was made with a service secret that is not
	// known: too old, or too new for a daemon that has not fetched it yet.
	ErrUnknownSecret = errors.New("ticket made with an unknown service secret")
	// ErrReclaim means that a global id was claimed without a valid old ticket for it.
	ErrReclaim = errors.New("global id claimed without its ticket")
	// ErrConnectionSecret means that the connection secret is missing or too short.
	ErrConnectionSecret = errors.New("connection secret is missing or too short")
	// ErrOutOfOrder means that a payload, or a call, came at the wrong point of an exchange.
	ErrOutOfOrder = errors.New("out of order")
	// ErrLoginNeeded means that tickets cannot be renewed on the monitor session, and a
	// new login is needed.
	ErrLoginNeeded = errors.New("a new login is needed")
	// ErrStatus means that a reply carries a status other than 0.
	ErrStatus = errors.New("monitor refused the request")
)

// inval refuses with EINVAL instead of the usual EACCES.
func inval(reason string) error {
	return &auth.Refused{Errno: auth.EINVAL, Reason: reason}
}

func malformed(what string) error {
	return &malformedError{what}
}

type malformedError struct{ what string }

func (e *malformedError) Error() string        { return "malformed input: " + e.what }
func (e *malformedError) Is(target error) bool { return target == wire.ErrMalformed }
