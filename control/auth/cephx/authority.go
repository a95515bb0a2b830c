package cephx

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Life of tickets and of the secrets that make them, as the reference has it.
const (
	defaultAuthTTL    = 72 * time.Hour
	DefaultServiceTTL = time.Hour
)

// firstGlobalID is the first id of the built-in allocator, as in real monitors; smaller numbers
// look like daemons in a log.
const firstGlobalID = 4096

// AuthorityConfig configures an [Authority].
type AuthorityConfig struct {
	// Entities are the entities and their keys; the entity "mon." has the key that the
	// monitors share.
	Entities EntitySource
	// Ciphers are the kinds of keys that are allowed and made.
	Ciphers Ciphers
	// AuthTTL is the life of auth tickets; 0 means three days.
	AuthTTL time.Duration
	// ServiceTTL is the life of service tickets; 0 means [DefaultServiceTTL].
	ServiceTTL time.Duration
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
	// Rand is the source of keys and challenges; nil means [crypto/rand]. It must be safe
	// for concurrent use.
	Rand io.Reader
}

// Authority is the monitors' part of cephx: it proves entities, gives out tickets, and
// makes and rotates the secrets of the services. It is safe for concurrent use. It is a
// [SecretSource].
type Authority struct {
	entities EntitySource
	ciphers  Ciphers
	authTTL  time.Duration
	ttl      time.Duration
	now      func() time.Time
	rand     io.Reader
	// nobody is the key for the proof of an unknown entity, so that its check takes as long as
	// that of a known one.
	nobody Key

	mu      sync.Mutex
	secrets map[service]*rotatingSecrets
	lastID  uint64
}

// NewAuthority returns an authority with fresh service secrets.
func NewAuthority(cfg AuthorityConfig) (*Authority, error) {
	switch {
	case cfg.Entities == nil:
		return nil, fmt.Errorf("%w: entities are missing", errConfig)
	case cfg.AuthTTL < 0 || cfg.ServiceTTL < 0 || cfg.AuthTTL > maxTTL || cfg.ServiceTTL > maxTTL:
		return nil, fmt.Errorf("%w: life of tickets must be from 0 to %v", errConfig, maxTTL)
	}
	ciphers, err := cfg.Ciphers.normal()
	if err != nil {
		return nil, err
	}
	a := &Authority{
		entities: cfg.Entities, ciphers: ciphers, authTTL: cmp.Or(cfg.AuthTTL, defaultAuthTTL), ttl: cmp.Or(cfg.ServiceTTL, DefaultServiceTTL),
		now: wallClock(cfg.Now), rand: cfg.Rand, secrets: make(map[service]*rotatingSecrets), lastID: firstGlobalID,
	}
	if a.nobody, err = NewKey(ciphers.Preferred, a.rand, a.now()); err != nil {
		return nil, err
	}
	return a, a.rotate(a.now())
}

// maxTTL can be added three times on the wire until 2106.
const maxTTL = 10 * 365 * 24 * time.Hour

// nextID is a global id that was never given out before. Another authority of the same
// cluster would give out the same.
func (a *Authority) nextID() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastID++
	return a.lastID
}

// rotate makes the service secrets that are due. Every use of the authority does it.
func (a *Authority) rotate(now time.Time) error {
	if a.nobody.IsZero() {
		return errNoKey // wiped
	}
	for _, s := range append(ticketServices[:len(ticketServices):len(ticketServices)], serviceAuth) {
		r := a.secrets[s]
		if r == nil {
			r = new(rotatingSecrets)
			a.secrets[s] = r
		}
		if err := r.rotate(now, a.lifetime(s), a.ciphers.Service, a.rand); err != nil {
			return fmt.Errorf("rotate secrets of %v: %w", s, err)
		}
	}
	return nil
}

func (a *Authority) lifetime(s service) time.Duration {
	if s == serviceAuth {
		return a.authTTL
	}
	return a.ttl
}

// Secret implements [SecretSource]. The id of all ones, with the service mon, is the key
// of "mon.".
func (a *Authority) Secret(of wire.EntityType, id uint64) (Key, bool) {
	if id == monSecretID {
		if of != wire.Mon {
			return Key{}, false
		}
		e, ok := a.entities.Lookup(wire.EntityName{Type: wire.Mon})
		return e.Key.Clone(), ok && !e.Key.IsZero()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.secrets[service(of)]
	if a.rotate(a.now()) != nil || s == nil {
		return Key{}, false
	}
	k, ok := s.byID(id)
	return k.Clone(), ok
}

// rotating returns a copy of the secrets of a service.
func (a *Authority) rotating(s service) (rotatingSecrets, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.rotate(a.now()); err != nil {
		return rotatingSecrets{}, err
	}
	if a.secrets[s] == nil {
		return rotatingSecrets{}, fmt.Errorf("%w: no such service: %v", errConfig, s)
	}
	return a.secrets[s].clone(), nil
}

// Renew throws away the secrets of all services and makes new ones, so that no ticket of before
// opens a connection. Only auth tickets stay good, with which entities ask for new tickets; a
// monmap with a higher AuthEpoch tells them to.
func (a *Authority) Renew() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.rotate(a.now()); err != nil {
		return err
	}
	for _, s := range ticketServices {
		a.secrets[s].Wipe()
		delete(a.secrets, s)
	}
	return a.rotate(a.now())
}

// issueFor makes a ticket for service s and its grant, with the entity's capabilities. kind
// is that of the key under which the grant will stand; a session key for a service other
// than the issuer is no stronger than the secret of that service.
func (a *Authority) issueFor(s service, name wire.EntityName, globalID uint64, kind Kind) (ticket, grant, error) {
	c := ticketContent{name: name, globalID: globalID, created: a.now()}
	if s != serviceMon && s != serviceAuth {
		e, _ := a.entities.Lookup(name)
		c.caps = encodeCaps(e.Caps[wire.EntityType(s).String()])
	}
	a.mu.Lock()
	if err := a.rotate(c.created); err != nil {
		a.mu.Unlock()
		return ticket{}, grant{}, err
	}
	r := a.secrets[s]
	if r == nil {
		a.mu.Unlock()
		return ticket{}, grant{}, fmt.Errorf("%w: no such service: %v", errConfig, s)
	}
	secret, limit := r.issuing()
	secret.key = secret.key.Clone()
	a.mu.Unlock()
	defer secret.key.Wipe()
	if s != serviceAuth {
		kind = min(kind, secret.key.kind())
	}
	return issue(secret, kind, min(a.lifetime(s), limit.Sub(c.created)), c, a.rand)
}

// issue makes a ticket with a session key of a kind, and its grant. The content has neither the key
// nor the end of its life.
func issue(secret rotatingSecret, kind Kind, ttl time.Duration, c ticketContent, r io.Reader) (ticket, grant, error) {
	session, err := NewKey(kind, r, c.created)
	if err != nil {
		return ticket{}, grant{}, err
	}
	c.expires, c.sessionKey = c.created.Add(ttl), session
	t, err := sealTicket(secret.id, secret.key, &c, r)
	if err != nil {
		session.Wipe()
		return ticket{}, grant{}, err
	}
	return t, grant{session, ttl}, nil
}

// Wipe overwrites the secrets of the services. The authority cannot be used any more. It
// must not run beside other methods. The keys of the entities belong to their source.
func (a *Authority) Wipe() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.secrets {
		s.Wipe()
	}
	clear(a.secrets)
	a.nobody.Wipe()
}
