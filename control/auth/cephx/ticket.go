package cephx

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// keptSecrets is the number of secrets of a service at a time: previous, current, next.
const keptSecrets = 3

// rotatingSecrets are the secrets of one service: usually the previous, the current and
// the next one. The zero value is empty.
type rotatingSecrets struct {
	list   []rotatingSecret // by rising id
	newest uint64           // the highest id ever
}

type rotatingSecret struct {
	id      uint64
	key     Key
	expires time.Time
}

const rotatingSecretMinSize = 8 + 1 + keyHeadSize + 16 + 8

// byID returns the secret with the given id. The handle is shared with the receiver.
func (s *rotatingSecrets) byID(id uint64) (Key, bool) {
	for _, e := range s.list {
		if e.id == id {
			return e.key, true
		}
	}
	return Key{}, false
}

// currentExpires returns when the current secret, the second one, expires; that is when
// the monitors make another one. It is the zero time if there are fewer than three.
func (s *rotatingSecrets) currentExpires() time.Time {
	if len(s.list) < keptSecrets {
		return time.Time{}
	}
	return s.list[1].expires
}

// rotate makes the secrets that are due at now, with random keys of a kind from r (or
// [crypto/rand] if r is nil), and drops the oldest ones. Each lives for ttl, which is positive,
// beyond the one before it (Ceph's CephxKeyServer.cc).
func (s *rotatingSecrets) rotate(now time.Time, ttl time.Duration, kind Kind, r io.Reader) error {
	if ttl <= 0 {
		return fmt.Errorf("%w: life of secrets is %v", errConfig, ttl)
	}
	for len(s.list) < keptSecrets || !s.list[1].expires.After(now) {
		expires := now
		if n := len(s.list); n > 0 {
			expires = now.Add(ttl)
			if last := s.list[n-1].expires; last.After(expires) {
				expires = last
			}
		}
		key, err := NewKey(kind, r, now)
		if err != nil {
			return err
		}
		s.newest++
		s.list = append(s.list, rotatingSecret{s.newest, key, expires.Add(ttl)})
		for len(s.list) > keptSecrets {
			s.list[0].key.Wipe()
			s.list = slices.Delete(s.list, 0, 1)
		}
	}
	return nil
}

// issuing returns the secret that tickets are made with, which is the current one, and until
// when the newest secret lives, beyond which no ticket may. Rotate has succeeded before.
func (s *rotatingSecrets) issuing() (e rotatingSecret, limit time.Time) {
	return s.list[1], s.list[len(s.list)-1].expires
}

// appendTo appends the wire form, which contains the keys.
func (s *rotatingSecrets) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = le.AppendUint32(dst, uint32(len(s.list)))
	for _, e := range s.list {
		dst = le.AppendUint64(dst, e.id)
		dst = append(dst, structVersion)
		dst = e.key.appendTo(dst)
		dst = wire.AppendUtime(dst, e.expires)
	}
	return le.AppendUint64(dst, s.newest)
}

func readRotatingSecrets(r *wire.Reader) rotatingSecrets {
	var s rotatingSecrets
	readVersion(r, "rotating secrets", structVersion)
	n := r.Count(rotatingSecretMinSize)
	for i := 0; i < n && r.Err() == nil; i++ {
		e := rotatingSecret{id: r.U64()}
		readVersion(r, "rotating secret", structVersion)
		e.key = readKey(r)
		e.expires = r.Utime()
		if i > 0 && e.id <= s.list[i-1].id {
			r.Fail(malformed("ids of rotating secrets do not rise"))
		}
		s.list = append(s.list, e) // in any case: a failure wipes them all
	}
	s.newest = r.U64()
	if r.Err() != nil {
		s.Wipe()
		return rotatingSecrets{}
	}
	return s
}

// clone returns an independent copy.
func (s *rotatingSecrets) clone() rotatingSecrets {
	c := rotatingSecrets{list: slices.Clone(s.list), newest: s.newest}
	for i := range c.list {
		c.list[i].key = c.list[i].key.Clone()
	}
	return c
}

// Wipe overwrites the keys and empties s.
func (s *rotatingSecrets) Wipe() {
	for _, e := range s.list {
		e.key.Wipe()
	}
	s.list = nil
}

// SecretSource finds the secret that a ticket was made with. It must be safe for
// concurrent use. [Authority] and [SecretStore] implement it.
type SecretSource interface {
	// Secret returns a copy of the secret, which the caller wipes.
	Secret(service wire.EntityType, id uint64) (Key, bool)
}

// SecretStore keeps the rotating secrets of a daemon's own service. A [Client] that has it in
// its ClientConfig gets them from a monitor. It is safe for concurrent use.
type SecretStore struct {
	service wire.EntityType

	mu      sync.Mutex
	secrets rotatingSecrets
}

// NewSecretStore returns an empty store for one service.
func NewSecretStore(service wire.EntityType) *SecretStore { return &SecretStore{service: service} }

// update replaces the secrets. The store takes them over.
func (s *SecretStore) update(secrets rotatingSecrets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets.Wipe()
	s.secrets = secrets
}

// needRefresh reports whether the daemon should ask for the secrets: there are fewer
// than three, or the current one has expired. The next one stays valid meanwhile.
func (s *SecretStore) needRefresh(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.secrets.list) < keptSecrets || !now.Before(s.secrets.currentExpires())
}

// expires returns when the current secret does.
func (s *SecretStore) expires() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets.currentExpires()
}

// Secret implements [SecretSource].
func (s *SecretStore) Secret(service wire.EntityType, id uint64) (Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if service != s.service {
		return Key{}, false
	}
	k, ok := s.secrets.byID(id)
	return k.Clone(), ok
}

// Wipe overwrites the secrets and empties the store.
func (s *SecretStore) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets.Wipe()
}

const (
	structVersion     = 1
	authTicketVersion = 2
	historicAUID      = ^uint64(0)
	// monSecretID in a ticket stands for the key of "mon." itself.
	monSecretID = ^uint64(0)
	// maxTicketBlob bounds the tickets that are kept; real ones have some hundred bytes.
	maxTicketBlob = 64 << 10
)

// ticket is a ticket as its owner sees it: encrypted under the service secret secretID.
type ticket struct {
	secretID uint64
	blob     []byte
}

func (t ticket) isZero() bool { return len(t.blob) == 0 }

func (t ticket) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = le.AppendUint64(dst, t.secretID)
	return wire.AppendBlob(dst, t.blob)
}

// readTicket reads a ticket, and copies its blob.
func readTicket(r *wire.Reader) ticket {
	readVersion(r, "ticket", structVersion)
	t := ticket{secretID: r.U64()}
	blob := r.Blob()
	if len(blob) > maxTicketBlob {
		r.Fail(malformed(fmt.Sprintf("ticket of %d bytes", len(blob))))
	}
	if r.Err() != nil {
		return ticket{}
	}
	t.blob = append([]byte(nil), blob...)
	return t
}

// readVersion reads the version byte of a structure, which says how it begins. Versions
// above the known one only append.
func readVersion(r *wire.Reader, what string, least uint8) uint8 {
	v := r.U8()
	if r.Err() == nil && v < least {
		r.Fail(malformed(fmt.Sprintf("%s of version %d", what, v)))
	}
	return v
}

// ticketContent is the content of a ticket, which a service decrypts.
type ticketContent struct {
	name       wire.EntityName
	globalID   uint64
	created    time.Time
	expires    time.Time
	allowAll   bool
	caps       []byte // encoded: a string again, or empty
	sessionKey Key
}

func (c *ticketContent) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = append(dst, authTicketVersion)
	dst = c.name.AppendTo(dst)
	dst = le.AppendUint64(dst, c.globalID)
	dst = le.AppendUint64(dst, historicAUID)
	dst = wire.AppendUtime(dst, c.created)
	dst = wire.AppendUtime(dst, c.expires)
	dst = append(dst, structVersion)
	dst = wire.AppendBool(dst, c.allowAll)
	dst = wire.AppendBlob(dst, c.caps)
	dst = le.AppendUint32(dst, 0) // flags
	return c.sessionKey.appendTo(dst)
}

func readTicketContent(r *wire.Reader) ticketContent {
	var c ticketContent
	readVersion(r, "ticket content", structVersion)
	readVersion(r, "auth ticket", authTicketVersion)
	c.name = r.EntityName()
	c.globalID = r.U64()
	r.U64() // historic
	c.created = r.Utime()
	c.expires = r.Utime()
	readVersion(r, "caps info", structVersion)
	c.allowAll = r.Bool()
	c.caps = append([]byte(nil), r.Blob()...)
	r.U32() // flags
	c.sessionKey = readKey(r)
	return c
}

// capsText returns the capabilities that the ticket gives, such as "allow *"; "" if there are
// none.
func (c *ticketContent) capsText() (string, error) {
	switch {
	case c.allowAll:
		return "allow *", nil
	case len(c.caps) == 0:
		return "", nil
	}
	r := wire.NewReader(c.caps)
	s := r.Str()
	if err := r.Err(); err != nil {
		return "", fmt.Errorf("capabilities: %w", err)
	}
	return s, nil
}

// sealTicket makes the ticket under a service secret.
func sealTicket(secretID uint64, secret Key, c *ticketContent, r io.Reader) (ticket, error) {
	plain := c.appendTo(nil)
	defer clear(plain)
	blob, err := secret.seal(useTicket, nil, plain, r)
	return ticket{secretID, blob}, err
}

// openTicket is the service's side of sealTicket.
func openTicket(t ticket, secret Key) (ticketContent, error) {
	var c ticketContent
	err := secret.openDecode(useTicket, t.blob, func(r *wire.Reader) { c = readTicketContent(r) })
	return c, err
}

// grant is "part A": the key and the life of a ticket, for its owner.
type grant struct {
	sessionKey Key
	validity   time.Duration
}

func (g grant) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = g.sessionKey.appendTo(dst)
	dst = le.AppendUint32(dst, uint32(g.validity/time.Second))
	return le.AppendUint32(dst, uint32(g.validity%time.Second))
}

func readGrant(r *wire.Reader) grant {
	readVersion(r, "ticket grant", structVersion)
	k := readKey(r)
	v := time.Duration(r.U32())*time.Second + time.Duration(r.U32())
	if r.Err() != nil {
		k.Wipe()
		return grant{}
	}
	return grant{k, v}
}

// encodeCaps returns capabilities as tickets hold them: a string, or no bytes.
func encodeCaps(text string) []byte {
	if text == "" {
		return nil
	}
	return wire.AppendString(nil, text)
}
