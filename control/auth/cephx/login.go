package cephx

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// login is the connector's side of one login to a monitor. It belongs to one goroutine. Each
// error ends it.
type login struct {
	c     *Client
	epoch uint64

	// of the reclaim: id 0 and no ticket for a new id
	globalID  uint64
	oldTicket ticket
	oldKey    Key

	serverChallenge uint64
	wanted          service
}

// newLogin begins a login. If the client has a global id and an auth ticket, the login
// claims the same id again with that ticket (Ceph's CephxServiceHandler.cc).
func (c *Client) newLogin() *login {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &login{c: c, epoch: c.epoch}
	if t := c.tickets[serviceAuth]; t != nil {
		l.globalID, l.oldTicket, l.oldKey = c.globalID, t.ticket, t.sessionKey.Clone()
	}
	return l
}

// Login logs in to a monitor of protocol version 1, by MAuth messages, and renews what the
// login does not bring. ask sends one MAuth, of a protocol that is 0 at first, and returns the
// global id and the result of the MAuthReply. The id of the last one is returned.
//
// In protocol version 2 a messenger logs in through [Client.Start].
func (c *Client) Login(ask func(protocol auth.Method, payload []byte) (globalID uint64, reply []byte, err error)) (uint64, error) {
	l := c.newLogin()
	defer l.Wipe()
	_, reply, err := ask(0, appendMAuthStart(nil, c.name, l.globalID))
	if err != nil {
		return 0, err
	}
	proof, err := l.answer(reply)
	if err != nil {
		return 0, err
	}
	globalID, reply, err := ask(auth.Cephx, proof)
	if err != nil {
		return 0, l.refused(err)
	}
	res, err := l.done(globalID, 0, reply)
	if err != nil {
		return 0, err
	}
	res.Wipe()
	for whole := true; whole; {
		request, err := c.RenewRequest()
		if err != nil || request == nil {
			return globalID, err
		}
		if _, reply, err = ask(auth.Cephx, request); err != nil {
			return globalID, err
		}
		if whole, err = c.HandleReply(reply); err != nil {
			return globalID, err
		}
	}
	return globalID, nil
}

// refused is the error of a login by messages whose proof was refused with err. If it claimed an
// old global id the cause may be the old ticket.
func (l *login) refused(err error) error {
	if l.globalID == 0 || !errors.Is(err, &auth.Refused{Errno: auth.EACCES}) {
		return err
	}
	l.forget()
	return fmt.Errorf("%w: global id %d was claimed again: %v", errLoginNeeded, l.globalID, err)
}

// forget drops the old ticket, whose secret the monitors may not have any more: the next login asks for a new id.
func (l *login) forget() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if t := l.c.tickets[serviceAuth]; t != nil && slices.Equal(t.ticket.blob, l.oldTicket.blob) {
		t.sessionKey.Wipe()
		delete(l.c.tickets, serviceAuth)
	}
}

// first implements steps.
func (l *login) first() ([]byte, error) { return appendLoginStart(nil, l.c.name, l.globalID), nil }

// answer implements steps: the request proves the key and asks for all tickets.
func (l *login) answer(payload []byte) ([]byte, error) {
	challenge, err := decodeServerChallenge(payload)
	if err != nil {
		return nil, err
	}
	l.serverChallenge, l.wanted = challenge, l.c.services
	return l.c.authSessionKeyRequest(challenge, l.oldTicket, l.wanted)
}

// authSessionKeyRequest builds request 2 of the protocol.
func (c *Client) authSessionKeyRequest(serverChallenge uint64, old ticket, wanted service) ([]byte, error) {
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

// done implements steps. The client adopts the global id and the tickets. Tickets that the
// monitor did not send along are due at once. mode is 0 in protocol version 1.
func (l *login) done(globalID uint64, mode auth.Mode, payload []byte) (*auth.Result, error) {
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
	res := &auth.Result{SessionKey: got[serviceAuth].sessionKey.Secret(), ConnectionSecret: secret, GlobalID: globalID}
	l.c.adopt(l.epoch, globalID, l.serverChallenge, got)
	return res, nil
}

// again implements steps. A refusal of the old global id is answered with a request for a new one. Monitors of
// Ceph close the connection then, as they take no request behind a proof (ProtocolV2.cc): the next login asks, too.
func (l *login) again(result int32, err error) (steps, error) {
	if err == nil {
		return l, nil
	}
	if result != auth.EACCES || l.globalID == 0 {
		return nil, err
	}
	l.forget()
	l.globalID, l.oldTicket = 0, ticket{} // it asks for a new id, instead of claiming the old one
	l.oldKey.Wipe()
	l.oldKey = Key{}
	return l, nil
}

// openLoginReply opens reply 2 of the protocol: the auth ticket, the connection secret
// (blob C) and further tickets (blob X).
func (c *Client) openLoginReply(payload []byte, wanted service, old Key) (got map[service]*heldTicket, secret []byte, err error) {
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
	got, err = c.openIssued(list, serviceAuth, c.key, old)
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
	main := got[serviceAuth]
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
		more, err := c.openIssued(list, wanted&^serviceAuth, main.sessionKey, old)
		if err != nil {
			return got, secret, fmt.Errorf("extra tickets: %w", err)
		}
		for s, t := range more {
			got[s] = t
		}
	}
	return got, secret, nil
}

// Wipe overwrites the key of the login. The client keeps its tickets.
func (l *login) Wipe() { l.oldKey.Wipe() }
