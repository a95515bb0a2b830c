package cephx

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// ClientConfig configures a [Client].
type ClientConfig struct {
	// Name is the own entity name. For a monitor, for example mon.a, Key is the key of "mon.".
	Name wire.EntityName
	// Key is the key of the entity. The client keeps a copy.
	Key Key
	// Services are the services to get tickets for, as a set; 0 means mon, osd and mgr.
	Services wire.EntityType
	// Modes returns the connection modes to offer to a peer of the given type, most
	// preferred first. It must be safe for concurrent use. Nil means that connections of mons
	// prefer secure, others crc.
	Modes func(peer wire.EntityType) []auth.Mode
	// Authority lets a monitor make tickets for the daemons that it connects to. It is
	// not used by other entities.
	Authority *Authority
	// Secrets are the rotating secrets of a daemon's own service, which are renewed as tickets
	// are; nil for entities that are no daemon.
	Secrets *SecretStore
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
	// Rand is the source of challenges and nonces; nil means [crypto/rand]. It must be
	// safe for concurrent use.
	Rand io.Reader
}

// Client is the connector's side of cephx for one entity: it implements [auth.Client]
// and keeps the tickets. It is safe for concurrent use.
type Client struct {
	name     wire.EntityName
	key      Key
	services service
	secrets  *SecretStore
	modes    func(wire.EntityType) []auth.Mode
	issuer   *Authority
	now      func() time.Time
	rand     io.Reader

	mu       sync.Mutex
	globalID uint64
	tickets  map[service]*heldTicket
	// epoch counts the logins that were adopted.
	epoch uint64
	// challenge is that of the last login adopted; renewing the auth ticket on the
	// monitor session answers it again. It is known whenever there are tickets.
	challenge uint64
	pending   *pendingRenewal
	stale     bool // the secrets must be fetched, even if they are valid
	alls      int  // calls of RenewAll
	seen      seenKeys
}

// heldTicket is a ticket of the client, guarded by its mutex. The session key is wiped
// when the ticket is replaced; exchanges use copies.
type heldTicket struct {
	sessionKey Key
	ticket     ticket
	expires    time.Time
	renewAt    time.Time
}

// NewClient returns a client without tickets. It refuses a configuration without name or
// key.
func NewClient(cfg ClientConfig) (*Client, error) {
	switch {
	case cfg.Name.Type == 0:
		return nil, fmt.Errorf("%w: entity name is missing", errConfig)
	case !allServices.has(service(cfg.Services)):
		return nil, fmt.Errorf("%w: unknown services %v", errConfig, service(cfg.Services))
	}
	if _, err := cfg.Key.scheme(); err != nil {
		return nil, fmt.Errorf("%w: key of %v: %w", errConfig, cfg.Name, err)
	}
	wanted := cmp.Or(service(cfg.Services), defaultServices)
	return &Client{
		name: cfg.Name, key: cfg.Key.Clone(), services: wanted | serviceAuth, secrets: cfg.Secrets,
		modes: cfg.Modes, issuer: cfg.Authority, now: wallClock(cfg.Now), rand: cfg.Rand,
		tickets: make(map[service]*heldTicket),
	}, nil
}

// Start implements [auth.Client]. For a monitor it begins a login, for any other peer
// an authorizer; the latter fails with [ErrNoTicket] if there is no ticket that is still
// valid.
func (c *Client) Start(_ context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	modes := modesFor(c.modes, c.name.Type, peer)
	if len(modes) == 0 {
		return nil, fmt.Errorf("%w: none configured for %v", auth.ErrNoMode, peer)
	}
	if peer == wire.Mon && c.name.Type != wire.Mon {
		return &clientExchange{c: c, steps: c.newLogin(), modes: modes}, nil
	}
	a, err := c.newAuthorizer(service(peer))
	if err != nil {
		return nil, err
	}
	return &clientExchange{c: c, steps: a, modes: modes}, nil
}

// GlobalID returns the number that the monitors gave to this entity; 0 before the first
// login.
func (c *Client) GlobalID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.globalID
}

// TicketInfo describes a ticket of a [Client] without its secrets.
type TicketInfo struct {
	Service  wire.EntityType
	SecretID uint64    // of the service secret that it was made with
	RenewAt  time.Time // from then on [Client.RenewRequest] renews it
	Expires  time.Time // from then on it is not used
}

// Tickets lists the tickets, sorted by service.
func (c *Client) Tickets() []TicketInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []TicketInfo
	for s, t := range c.tickets {
		list = append(list, TicketInfo{wire.EntityType(s), t.ticket.secretID, t.renewAt, t.expires})
	}
	slices.SortFunc(list, func(a, b TicketInfo) int { return int(a.Service) - int(b.Service) })
	return list
}

// Wipe overwrites the key and all tickets. The client cannot be used any more. It must
// not run beside other methods, nor while exchanges of the client run.
func (c *Client) Wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropTickets()
	c.dropPending()
	c.key.Wipe()
}

func (c *Client) dropTickets() {
	for s, t := range c.tickets {
		t.sessionKey.Wipe()
		delete(c.tickets, s)
	}
}

// adopt takes over the tickets of a login that began in the given epoch. If meanwhile another
// login gave the client another global id, its tickets stay: tickets of two ids must not be
// mixed.
func (c *Client) adopt(epoch, globalID, challenge uint64, got map[service]*heldTicket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch && globalID != c.globalID && c.valid(serviceAuth) != nil {
		for _, t := range got {
			t.sessionKey.Wipe()
		}
		return
	}
	if globalID != c.globalID {
		c.dropTickets()
		c.globalID = globalID
	}
	c.epoch++
	c.challenge = challenge
	c.store(got)
}

func (c *Client) store(got map[service]*heldTicket) {
	for s, t := range got {
		if old := c.tickets[s]; old != nil {
			old.sessionKey.Wipe()
		}
		c.tickets[s] = t
	}
}

// valid returns the ticket for a service unless it is missing or has expired.
func (c *Client) valid(s service) *heldTicket {
	t := c.tickets[s]
	if t == nil || !c.now().Before(t.expires) {
		return nil
	}
	return t
}

// openIssued opens the tickets of a reply that are for wanted services.
func (c *Client) openIssued(list []issued, wanted service, principal, old Key) (map[service]*heldTicket, error) {
	now := c.now()
	got := make(map[service]*heldTicket)
	for i := range list {
		s := &list[i]
		if s.service == 0 || !wanted.has(s.service) || got[s.service] != nil {
			continue
		}
		g, t, err := s.open(principal, old)
		if err != nil {
			wipeTickets(got)
			return nil, err
		}
		expires := now.Add(g.validity)
		got[s.service] = &heldTicket{g.sessionKey, t, expires, expires.Add(-g.validity / 4)}
	}
	return got, nil
}

func wipeTickets(m map[service]*heldTicket) {
	for _, t := range m {
		t.sessionKey.Wipe()
	}
}

// newAuthorizer begins an authorizer for a service. It fails with [ErrNoTicket] if there
// is no valid ticket.
func (c *Client) newAuthorizer(s service) (*authorizer, error) {
	find := c.heldTicket
	if c.name.Type == wire.Mon {
		find = c.ownTicket
	}
	head, key, err := find(s)
	if err != nil {
		return nil, err
	}
	return newAuthorizer(c, head, key)
}

// heldTicket returns the head of an authorizer and a copy of the session key.
func (c *Client) heldTicket(s service) (authorizerHead, Key, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.valid(s)
	if t == nil {
		return authorizerHead{}, Key{}, fmt.Errorf("%w for %v", ErrNoTicket, s)
	}
	return authorizerHead{c.globalID, s, t.ticket}, t.sessionKey.Clone(), nil
}

// ownTicket makes a ticket as monitors do: for each other with the key of "mon.", for
// other services with the secrets that they rotate (Ceph's CephxProtocol.cc).
func (c *Client) ownTicket(s service) (authorizerHead, Key, error) {
	var (
		t   ticket
		g   grant
		err error
	)
	switch {
	case s == serviceMon:
		secret := rotatingSecret{id: monSecretID, key: c.key}
		t, g, err = issue(secret, c.key.kind(), DefaultServiceTTL, ticketContent{name: c.name, created: c.now()}, c.rand)
	case c.issuer != nil:
		t, g, err = c.issuer.issueFor(s, c.name, 0, AES256K)
	default:
		err = fmt.Errorf("%w for %v", ErrNoTicket, s)
	}
	return authorizerHead{0, s, t}, g.sessionKey, err
}

// invalidate makes a ticket that a service refused due for renewal.
func (c *Client) invalidate(s service, refused ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tickets[s]; t != nil && slices.Equal(t.ticket.blob, refused.blob) {
		t.renewAt = c.now()
	}
}

// wallClock returns now, or [time.Now] if it is nil, without the monotonic reading, which
// stands still while a machine sleeps and would keep tickets alive.
func wallClock(now func() time.Time) func() time.Time {
	if now == nil {
		now = time.Now
	}
	return func() time.Time { return now().Round(0) }
}

// seenKeys remembers session keys, as digests, to recognise a reply that is played again.
type seenKeys struct {
	ring [64][sha256.Size]byte
	next int
	n    int
}

// add reports whether the key is new, and remembers it.
func (s *seenKeys) add(k Key) bool {
	d := sha256.Sum256(k.data().secret)
	if slices.Contains(s.ring[:s.n], d) {
		return false
	}
	s.ring[s.next] = d
	s.next = (s.next + 1) % len(s.ring)
	s.n = min(s.n+1, len(s.ring))
	return true
}

// pendingRenewal is a renewal that was sent to the monitor.
type pendingRenewal struct {
	op     uint16
	wanted service
	epoch  uint64
	// key is the auth session key at the time of the request, which protects the tickets.
	key Key
	// alls is Client.alls at the time of the request: once that is higher the answer may be of before.
	alls int
}

func (c *Client) dropPending() {
	if c.pending != nil {
		c.pending.key.Wipe()
		c.pending = nil
	}
}

// due are the services whose tickets are missing or due for renewal: after three quarters of
// their life. Before the first login these are all, and only a login brings them.
func (c *Client) due() service {
	var due service
	for s := serviceMon; s <= serviceAuth; s <<= 1 {
		if !c.services.has(s) {
			continue
		}
		if t := c.tickets[s]; t == nil || !c.now().Before(t.renewAt) {
			due |= s
		}
	}
	return due
}

// RenewAll has all tickets and secrets renewed soon, though none is due: the monitors have
// thrown away the secrets of services.
func (c *Client) RenewAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tickets {
		t.renewAt = c.now()
	}
	c.stale = true
	c.alls++
}

// RenewAt returns when [Client.RenewRequest] will next have something to renew; the zero time
// if it already has.
func (c *Client) RenewAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due() != 0 || c.needSecrets() {
		return time.Time{}
	}
	var first time.Time
	if c.secrets != nil {
		first = c.secrets.expires()
	}
	for s, t := range c.tickets {
		if c.services.has(s) && (first.IsZero() || t.renewAt.Before(first)) {
			first = t.renewAt
		}
	}
	return first
}

// needSecrets reports whether the daemon should fetch the secrets of its service.
func (c *Client) needSecrets() bool {
	return c.secrets != nil && (c.stale || c.secrets.needRefresh(c.now()))
}

// RenewRequest returns the payload of an MAuth message (with protocol 2) that renews due
// tickets, or else the secrets of a daemon's service, for the authenticated session with a
// monitor; nil if nothing is due. Give the result of the MAuthReply to [Client.HandleReply].
// One request is outstanding at a time: a further call means that the earlier request was lost.
//
// It fails if there is no auth ticket: then a new login is needed. One that has expired renews itself, as
// monitors ask only for its secret. A renewal of the auth ticket answers the challenge of the login of this
// session again; after the session was lost the new login has renewed everything anyway.
func (c *Client) RenewRequest() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due()
	if due == 0 {
		if !c.needSecrets() {
			return nil, nil
		}
		c.dropPending()
		c.pending = &pendingRenewal{op: opRotatingKey, alls: c.alls}
		return le.AppendUint16(nil, opRotatingKey), nil
	}
	main := c.tickets[serviceAuth]
	if main == nil {
		return nil, errLoginNeeded
	}
	var (
		p   []byte
		err error
		op  uint16 = opPrincipalSessionKey
	)
	if due.has(serviceAuth) {
		op = opAuthSessionKey
		p, err = c.authSessionKeyRequest(c.challenge, main.ticket, due)
	} else {
		p, err = c.principalRequest(main, due)
	}
	if err != nil {
		return nil, err
	}
	c.dropPending()
	c.pending = &pendingRenewal{op: op, wanted: due, epoch: c.epoch, key: main.sessionKey.Clone(), alls: c.alls}
	return p, nil
}

// principalRequest builds request 3 of the protocol: an authorizer for the issuer and
// the wanted services.
func (c *Client) principalRequest(main *heldTicket, wanted service) ([]byte, error) {
	a, err := newAuthorizer(c, authorizerHead{c.globalID, serviceAuth, main.ticket}, main.sessionKey.Clone())
	if err != nil {
		return nil, err
	}
	defer a.Wipe()
	auth, err := a.first()
	if err != nil {
		return nil, err
	}
	p := append(le.AppendUint16(nil, opPrincipalSessionKey), auth...)
	return le.AppendUint32(append(p, structVersion), uint32(wanted)), nil
}

// HandleReply takes the result of the MAuthReply to the last RenewRequest, and stores the
// tickets or the secrets. whole is false if the monitor has not given all that was asked for:
// it refuses a service, or its secrets are due again. Ask again after a pause. A nil payload
// says that the monitor refused the request: the tickets are dropped, as they may have expired
// though our clock says otherwise, and the next login asks for another global id.
func (c *Client) HandleReply(payload []byte) (whole bool, err error) {
	c.mu.Lock()
	p := c.pending
	c.pending = nil
	if p != nil && payload == nil {
		c.dropTickets()
	}
	c.mu.Unlock()
	if p == nil {
		return false, fmt.Errorf("renewal: reply without a request: %w", errOutOfOrder)
	}
	defer p.key.Wipe()
	if p.op == opRotatingKey {
		return c.storeSecrets(p, payload)
	}
	got, err := c.openRenewal(p, payload)
	if err != nil {
		return false, fmt.Errorf("renewal: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != p.epoch {
		// A login came in between and has brought newer tickets, perhaps for another id.
		wipeTickets(got)
		return true, nil
	}
	if p.alls != c.alls {
		for _, t := range got {
			t.renewAt = c.now()
		}
	}
	c.store(got)
	return c.due()&p.wanted == 0, nil
}

// storeSecrets takes the answer to a request for the secrets of a daemon's service.
func (c *Client) storeSecrets(p *pendingRenewal, payload []byte) (whole bool, err error) {
	secrets, err := c.openSecrets(payload)
	if err != nil {
		return false, fmt.Errorf("rotating secrets: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = p.alls != c.alls
	c.secrets.update(secrets)
	return !c.needSecrets(), nil
}

// openSecrets opens the secrets of the entity's service.
func (c *Client) openSecrets(payload []byte) (s rotatingSecrets, err error) {
	r := wire.NewReader(payload)
	readReplyHeader(r, opRotatingKey)
	bare := r.Blob()
	if err := r.Err(); err != nil {
		return s, err
	}
	err = c.key.openDecode(useRotating, bare, func(r *wire.Reader) { s = readRotatingSecrets(r) })
	return s, err
}

func (c *Client) openRenewal(p *pendingRenewal, payload []byte) (map[service]*heldTicket, error) {
	if p.op == opAuthSessionKey {
		got, secret, err := c.openLoginReply(payload, p.wanted, p.key)
		clear(secret)
		return got, err
	}
	r := wire.NewReader(payload)
	readReplyHeader(r, p.op)
	list := readIssued(r)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c.openIssued(list, p.wanted, p.key, p.key)
}
