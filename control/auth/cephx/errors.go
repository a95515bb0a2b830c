package cephx

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Errors of this package. Test for them with [errors.Is]. A payload that cannot be
// decoded gives an error that wraps [wire.ErrMalformed]. On the acceptor every one of
// them refuses the peer with [auth.EACCES], unless it also wraps an [auth.Refused].
var (
	// errKeyType means that a key is of a kind that is unknown, or not allowed here.
	errKeyType = errors.New("unsupported key type")
	// errNoKey means that a key is missing or was wiped.
	errNoKey = errors.New("no key")
	// errKeyring: a keyring file, or an entry for one, is wrong. The text never quotes a key.
	errKeyring = errors.New("keyring")
	// errConfig means that a configuration makes no sense.
	errConfig = errors.New("invalid cephx configuration")
	// errWrongKey: the bytes were made with another key, or altered on the way.
	errWrongKey = errors.New("decryption failed, wrong key or altered data")
	// errProof: a connector could not prove that it has the key of its entity, or there is no
	// such entity.
	errProof = errors.New("entity not proven")
	// ErrServerProof means that an acceptor could not prove that it knows the session key.
	ErrServerProof = errors.New("acceptor did not prove the session key")
	// errChallenge means that the answer to a challenge is wrong, as that of a replayed
	// exchange is.
	errChallenge = errors.New("wrong answer to the challenge")
	// errReplayed means that a monitor's reply carries a session key that this client has
	// had before.
	errReplayed = errors.New("monitor's reply was seen before")
	// ErrNoTicket means that there is no valid ticket for a service. Log in to a monitor,
	// or renew the tickets.
	ErrNoTicket = errors.New("no valid ticket")
	// errTicketExpired means that a ticket is too old.
	errTicketExpired = errors.New("ticket expired")
	// errForeignTicket: a ticket is for another service, or belongs to another entity than its
	// sender.
	errForeignTicket = errors.New("ticket is for another service or entity")
	// errUnknownSecret means that a ticket was made with a service secret that is not
	// known: too old, or too new for a daemon that has not fetched it yet.
	errUnknownSecret = errors.New("ticket made with an unknown service secret")
	// errReclaim means that a global id was claimed without a valid old ticket for it.
	errReclaim = errors.New("global id claimed without its ticket")
	// errConnectionSecret means that the connection secret is missing or too short.
	errConnectionSecret = errors.New("connection secret is missing or too short")
	// errOutOfOrder means that a payload, or a call, came at the wrong point of an exchange.
	errOutOfOrder = errors.New("out of order")
	// errLoginNeeded means that tickets cannot be renewed on the monitor session, and a
	// new login is needed.
	errLoginNeeded = errors.New("a new login is needed")
	// errStatus means that a reply carries a status other than 0.
	errStatus = errors.New("monitor refused the request")
)

// inval refuses with EINVAL instead of the usual EACCES.
func inval(reason string) error {
	return &auth.Refused{Errno: auth.EINVAL, Reason: reason}
}

func malformed(what string) error { return fmt.Errorf("%w: %s", wire.ErrMalformed, what) }
