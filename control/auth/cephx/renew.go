package cephx

import (
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// pendingRenewal is a renewal that was sent to the monitor.
type pendingRenewal struct {
	op     uint16
	wanted Service
	epoch  uint64
	// key is the auth session key at the time of the request, which protects the reply.
	key Key
}

func (c *Client) dropPending() {
	if c.pending != nil {
		c.pending.key.Wipe()
		c.pending = nil
	}
}

// NeedRenew returns the services whose tickets are missing or due for renewal at now: after
// three quarters of their life; 0: none. Before the first login it names all wanted services;
// only a login brings them.
func (c *Client) NeedRenew(now time.Time) Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due(now)
}

func (c *Client) due(now time.Time) Service {
	var due Service
	for s := ServiceMon; s <= ServiceAuth; s <<= 1 {
		if !c.services.has(s) {
			continue
		}
		if t := c.tickets[s]; t == nil || !now.Before(t.renewAt) {
			due |= s
		}
	}
	return due
}

// RenewAll has all tickets renewed soon, though none is due: the monitors have thrown away
// the secrets that they were made with.
func (c *Client) RenewAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tickets {
		t.renewAt = c.now()
	}
}

// RenewAt returns when [Client.NeedRenew] will next be other than 0; the zero time if it
// already is.
func (c *Client) RenewAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due(c.now()) != 0 {
		return time.Time{}
	}
	var first time.Time
	for s, t := range c.tickets {
		if c.services.has(s) && (first.IsZero() || t.renewAt.Before(first)) {
			first = t.renewAt
		}
	}
	return first
}

// RenewRequest returns the payload of an MAuth message (with protocol 2) that renews due
// tickets, for the authenticated session with a monitor; nil if none is due. Give the result of
// the MAuthReply to [Client.HandleReply]. One request is outstanding at a time: a further call
// means that the earlier request was lost.
//
// It fails with [errLoginNeeded] if there is no auth ticket that is still valid. A
// renewal of the auth ticket answers the challenge of the login of this session again;
// after the session was lost the new login has renewed everything anyway.
func (c *Client) RenewRequest() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due(c.now())
	if due == 0 {
		return nil, nil
	}
	main := c.valid(ServiceAuth)
	if main == nil {
		return nil, errLoginNeeded
	}
	var (
		p   []byte
		err error
		op  uint16 = opPrincipalSessionKey
	)
	if due.has(ServiceAuth) {
		op = opAuthSessionKey
		p, err = c.authSessionKeyRequest(c.challenge, main.ticket, due)
	} else {
		p, err = c.principalRequest(main, due)
	}
	if err != nil {
		return nil, err
	}
	c.dropPending()
	c.pending = &pendingRenewal{op, due, c.epoch, main.sessionKey.Clone()}
	return p, nil
}

// principalRequest builds request 3 of the protocol: an authorizer for the issuer and
// the wanted services.
func (c *Client) principalRequest(main *heldTicket, wanted Service) ([]byte, error) {
	a, err := newAuthorizer(authorizerHead{c.globalID, ServiceAuth, main.ticket}, main.sessionKey.Clone(), c.rand)
	if err != nil {
		return nil, err
	}
	defer a.Wipe()
	auth, err := a.First()
	if err != nil {
		return nil, err
	}
	p := append(le.AppendUint16(nil, opPrincipalSessionKey), auth...)
	return le.AppendUint32(append(p, structVersion), uint32(wanted)), nil
}

// HandleReply takes the result of the MAuthReply to the last RenewRequest and stores the
// tickets. The monitor refused services that [Client.NeedRenew] still names.
func (c *Client) HandleReply(payload []byte) error {
	c.mu.Lock()
	p := c.pending
	c.pending = nil
	c.mu.Unlock()
	if p == nil {
		return fmt.Errorf("renewal: reply without a request: %w", ErrOutOfOrder)
	}
	defer p.key.Wipe()
	got, err := c.openRenewal(p, payload)
	if err != nil {
		return fmt.Errorf("renewal: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != p.epoch {
		// A login came in between and has brought newer tickets, perhaps for another id.
		wipeTickets(got)
		return nil
	}
	c.store(got)
	return nil
}

func (c *Client) openRenewal(p *pendingRenewal, payload []byte) (map[Service]*heldTicket, error) {
	if p.op == opAuthSessionKey {
		got, secret, err := c.openLoginReply(payload, p.wanted, p.key)
		clear(secret)
		return got, err
	}
	r := wire.NewReader(payload)
	if op := readReplyHeader(r); r.Err() == nil && op != p.op {
		r.Fail(malformed(fmt.Sprintf("reply to op 0x%04x", op)))
	}
	list := readIssued(r)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c.openIssued(list, p.wanted, p.key, p.key)
}

// RotatingRequest returns the payload of the MAuth message (with protocol 2) with which
// a daemon asks for the secrets of its service, over the authenticated session with a
// monitor.
func (c *Client) RotatingRequest() []byte { return le.AppendUint16(nil, opRotatingKey) }

// HandleRotatingReply takes the result of the MAuthReply to a RotatingRequest. The
// receiver owns the secrets; give them to a [SecretStore].
func (c *Client) HandleRotatingReply(payload []byte) (RotatingSecrets, error) {
	r := wire.NewReader(payload)
	if op := readReplyHeader(r); r.Err() == nil && op != opRotatingKey {
		r.Fail(malformed(fmt.Sprintf("reply to op 0x%04x", op)))
	}
	bare := r.Blob()
	if err := r.Err(); err != nil {
		return RotatingSecrets{}, fmt.Errorf("rotating secrets: %w", err)
	}
	var s RotatingSecrets
	err := c.key.openDecode(useRotating, bare, func(r *wire.Reader) { s = readRotatingSecrets(r) })
	return s, err
}
