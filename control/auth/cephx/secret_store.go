package cephx

import (
	"fmt"
	"sync"
	"time"
)

// SecretSource finds the secret that a ticket was made with. It must be safe for
// concurrent use. [Authority] and [SecretStore] implement it.
type SecretSource interface {
	// Secret returns a copy of the secret, which the caller wipes.
	Secret(s Service, id uint64) (Key, bool)
}

// SecretStore keeps the rotating secrets of a daemon's own service, as it got them from
// a monitor with [Client.HandleRotatingReply]. It is safe for concurrent use.
type SecretStore struct {
	service Service

	mu      sync.Mutex
	secrets RotatingSecrets
}

// NewSecretStore returns an empty store for one service.
func NewSecretStore(s Service) *SecretStore { return &SecretStore{service: s} }

// Update replaces the secrets. The store takes them over.
func (s *SecretStore) Update(secrets RotatingSecrets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets.Wipe()
	s.secrets = secrets
}

// NeedRefresh reports whether the daemon should ask for the secrets: there are fewer
// than three, or the current one has expired. The next one stays valid meanwhile.
func (s *SecretStore) NeedRefresh(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets.len() < keptSecrets || !now.Before(s.secrets.CurrentExpires())
}

// Secret implements [SecretSource].
func (s *SecretStore) Secret(service Service, id uint64) (Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if service != s.service {
		return Key{}, false
	}
	k, ok := s.secrets.Key(id)
	return k.Clone(), ok
}

// Wipe overwrites the secrets and empties the store.
func (s *SecretStore) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets.Wipe()
}

// String shows ids and times.
func (s *SecretStore) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%v %v", s.service, s.secrets)
}
