package cephx

import (
	"context"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Login is the connector's side of one login to a monitor. In protocol version 2 a
// messenger drives it through [Client.Start]; in version 1 its payloads travel in MAuth
// messages. It belongs to one goroutine. Its steps are StartMAuth, Challenge, Done; each
// error ends it. Call Wipe when it is over.
type Login struct {
	c     *Client
	step  loginStep
	epoch uint64

	// of the reclaim: id 0 and no ticket for a new id
	globalID  uint64
	oldTicket ticket
	oldKey    Key

	serverChallenge uint64
	wanted          Service
	sessionKey      Key
}

type loginStep uint8

const (
	loginNew loginStep = iota
	loginStarted
	loginProven
	loginDone
)

// NewLogin begins a login. If the client has a global id and an auth ticket, the login
// claims the same id again with that ticket (Ceph's CephxServiceHandler.cc).
func (c *Client) NewLogin() *Login {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &Login{c: c, epoch: c.epoch}
	if t := c.tickets[ServiceAuth]; t != nil {
		l.globalID, l.oldTicket, l.oldKey = c.globalID, t.ticket, t.sessionKey.Clone()
	}
	return l
}

// forgetID turns a login that claims an old id into one that asks for a new id.
func (l *Login) forgetID() {
	l.step, l.globalID, l.oldTicket = loginNew, 0, ticket{}
	l.oldKey.Wipe()
	l.oldKey = Key{}
}

// start returns the payload of AUTH_REQUEST.
func (l *Login) start() ([]byte, error) {
	if l.step != loginNew {
		return nil, fmt.Errorf("login: start: %w", ErrOutOfOrder)
	}
	l.step = loginStarted
	return appendLoginStart(nil, l.c.name, l.globalID), nil
}

// StartMAuth returns the payload of the MAuth message with protocol 0.
func (l *Login) StartMAuth() ([]byte, error) {
	if _, err := l.start(); err != nil {
		return nil, err
	}
	return appendMAuthStart(nil, l.c.name, l.globalID), nil
}

// Challenge takes the server challenge and returns the request that proves the key and
// asks for all tickets.
func (l *Login) Challenge(payload []byte) ([]byte, error) {
	if l.step != loginStarted {
		return nil, fmt.Errorf("login: challenge: %w", ErrOutOfOrder)
	}
	challenge, err := decodeServerChallenge(payload)
	if err != nil {
		return nil, err
	}
	l.step, l.serverChallenge, l.wanted = loginProven, challenge, l.c.services
	return l.c.authSessionKeyRequest(challenge, l.oldTicket, l.wanted)
}

// authSessionKeyRequest builds request 2 of the protocol.
func (c *Client) authSessionKeyRequest(serverChallenge uint64, old ticket, wanted Service) ([]byte, error) {
	client, err := randomU64(c.rand)
	if err != nil {
		return nil, err
	}
	proof, err := c.key.proof(serverChallenge, client)
	if err != nil {
		return nil, err
	}
	a := authenticate{authenticateVersion, client, proof, old, wanted}
	return a.appendTo(le.AppendUint16(nil, opAuthSessionKey)), nil
}

// Done takes the reply of the monitor and its AUTH_DONE or MAuthReply fields; mode is 0
// in protocol version 1. The client adopts the global id and the tickets. The connection
// secret is empty unless mode is [auth.Secure]; the caller wipes it.
//
// Tickets that the monitor did not send along are named by [Client.NeedRenew] at once.
func (l *Login) Done(globalID uint64, mode auth.Mode, payload []byte) (secret []byte, err error) {
	if l.step != loginProven {
		return nil, fmt.Errorf("login: done: %w", ErrOutOfOrder)
	}
	if globalID == 0 {
		return nil, malformed("global id is zero")
	}
	got, secret, err := l.c.openLoginReply(payload, l.wanted, l.oldKey)
	if err != nil {
		return nil, err
	}
	if secret, err = secretFor(mode, secret); err != nil {
		wipeTickets(got)
		return nil, err
	}
	l.step = loginDone
	l.sessionKey = got[ServiceAuth].sessionKey.Clone()
	l.c.adopt(l.epoch, globalID, l.serverChallenge, got)
	return secret, nil
}

// openLoginReply opens reply 2 of the protocol: the auth ticket, the connection secret
// (blob C) and further tickets (blob X).
func (c *Client) openLoginReply(payload []byte, wanted Service, old Key) (got map[Service]*heldTicket, secret []byte, err error) {
	r := wire.NewReader(payload)
	readReplyHeader(r, opAuthSessionKey)
	list := readIssued(r)
	var blobC, blobX []byte
	if r.Len() > 0 {
		blobC, blobX = r.Blob(), r.Blob()
	}
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("login reply: %w", err)
	}
	got, err = c.openIssued(list, ServiceAuth, c.key, old)
	if err != nil {
		return nil, nil, fmt.Errorf("login reply: %w", err)
	}
	defer func() {
		if err != nil {
			wipeTickets(got)
			clear(secret)
			got, secret, err = nil, nil, fmt.Errorf("login reply: %w", err)
		}
	}()
	main := got[ServiceAuth]
	if main == nil {
		return got, nil, malformed("no auth ticket")
	}
	c.mu.Lock()
	fresh := c.seen.add(main.sessionKey)
	c.mu.Unlock()
	if !fresh {
		return got, nil, errReplayed
	}
	if secret, err = openSecret(main.sessionKey, blobC); err != nil {
		return got, nil, err
	}
	if len(blobX) > 0 {
		extra := wire.NewReader(blobX)
		list := readIssued(extra)
		if err := extra.Err(); err != nil {
			return got, secret, fmt.Errorf("extra tickets: %w", err)
		}
		more, err := c.openIssued(list, wanted&^ServiceAuth, main.sessionKey, old)
		if err != nil {
			return got, secret, fmt.Errorf("extra tickets: %w", err)
		}
		for s, t := range more {
			got[s] = t
		}
	}
	return got, secret, nil
}

// Wipe overwrites the keys of the login. The client keeps its tickets.
func (l *Login) Wipe() {
	l.oldKey.Wipe()
	l.sessionKey.Wipe()
}

// loginExchange is a [Login] behind [auth.ClientExchange].
type loginExchange struct {
	c     *Client
	login *Login
	modes []auth.Mode
}

func (e *loginExchange) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	p, err := e.login.start()
	return auth.Cephx, e.modes, p, err
}

// BadMethod tries again in two cases: with the modes that both sides have, if they are
// fewer, and with a new global id if the old one was refused. Neither can happen for
// ever. The client keeps the old id until that login has succeeded.
func (e *loginExchange) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	if m != auth.Cephx {
		return fmt.Errorf("%w: %v", errWrongMethod, m)
	}
	next, err := badMethod(e.modes, result, methods, modes)
	switch {
	case err == nil:
		e.modes = next
		e.login.step = loginNew
	case result == auth.EACCES && e.login.globalID != 0:
		e.login.forgetID()
	default:
		return err
	}
	return nil
}

func (e *loginExchange) ReplyMore(_ context.Context, payload []byte) ([]byte, error) {
	return e.login.Challenge(payload)
}

func (e *loginExchange) Done(_ context.Context, globalID uint64, mode auth.Mode, payload []byte) (*auth.Result, error) {
	if err := auth.CheckMode(auth.Cephx, e.modes, mode); err != nil {
		return nil, err
	}
	secret, err := e.login.Done(globalID, mode, payload)
	if err != nil {
		return nil, err
	}
	return &auth.Result{
		SessionKey: e.login.sessionKey.Secret(), ConnectionSecret: secret,
		GlobalID: globalID, Entity: e.c.name, Mode: mode, Method: auth.Cephx,
	}, nil
}

// Wipe implements [auth.Wiper].
func (e *loginExchange) Wipe() { e.login.Wipe() }
