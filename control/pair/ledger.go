package pair

import (
	"fmt"
	"slices"
	"sync"
)

// ledger knows the values that a durable server must have, for tests that end its process or
// cut its power at any moment: an acknowledged change is there, and a change without an answer
// is there from the next process on, or never. A value has a version, which a test does not
// use twice for a key; 0 stands for no value. The zero ledger is of an empty
// server. Any goroutine.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
	life int // number of the server's process
}

// account are the known changes of a key.
type account struct {
	acked uint64
	maybe []attempt // since then, that were not acknowledged
}

type attempt struct {
	version uint64
	life    int
}

func (l *ledger) account(key string) *account {
	if l.keys == nil {
		l.keys = map[string]*account{}
	}
	if l.keys[key] == nil {
		l.keys[key] = &account{}
	}
	return l.keys[key]
}

// Acknowledged notes a change that the server has confirmed. The changes of a key must be made
// one after the other.
func (l *ledger) Acknowledged(key string, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.account(key) = account{acked: version}
}

// Refused notes a change that failed, or had no answer: it may have happened.
func (l *ledger) Refused(key string, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.account(key)
	k.maybe = append(k.maybe, attempt{version, l.life})
}

// Found notes the version that was read. The error says that the server must not have it, or
// must not have it any more.
func (l *ledger) Found(key string, version uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.account(key)
	acked, ok := k.acked, version == k.acked
	k.maybe = slices.DeleteFunc(k.maybe, func(a attempt) bool {
		ok = ok || a.version == version && a.life < l.life
		return a.life < l.life // it is decided
	})
	k.acked = version
	if !ok {
		return fmt.Errorf("pair: %s has version %d, and %d was acknowledged", key, version, acked)
	}
	return nil
}

// Restarted notes that the server's process has ended: the next process gets the requests
// that follow.
func (l *ledger) Restarted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life++
}

// Present are the keys that have a value, in order, once each was Found or Acknowledged.
func (l *ledger) Present() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.keys {
		if k.acked != 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
