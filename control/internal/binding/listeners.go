package binding

import (
	"slices"
	"sync"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Listeners owns the list of a messenger's listeners. The zero value has none.
// Its lock is held for a few lines of memory only, so its methods may be called
// under another one.
//
// Who takes listeners out of it closes them, after telling everybody who may look
// at their descriptors.
type Listeners struct {
	mu         sync.Mutex
	list       []*loop.Listener // replaced, never changed; guarded by mu
	handedOver uint64           // calls of Take; guarded by mu
}

// All are the listeners: of one address behind each other until cores come and
// go, and the addresses in their order always. The caller does not change it.
func (s *Listeners) All() []*loop.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// Groups are the listeners of each address, in the order of the addresses.
func (s *Listeners) Groups() []Group { return Groups(s.All()) }

// Groups are the listeners of each address, in the order of the list.
func Groups(list []*loop.Listener) []Group {
	var out []Group
	for _, l := range list {
		i := slices.IndexFunc(out, func(g Group) bool { return g.Addr() == l.Addr() })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], l)
	}
	return out
}

// Taken is the number of calls of Take so far, for Swap and for a
// steering.Steerer.
func (s *Listeners) Taken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handedOver
}

// Take empties the list and returns it: the messenger does not listen any more.
// taken is the number of its calls, this one included.
func (s *Listeners) Take() (old []*loop.Listener, taken uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.list
	s.list = nil
	s.handedOver++
	return old, s.handedOver
}

// Swap puts the listeners of new groups in the place of the old ones, which it
// returns. It fails, and changes nothing, if Take was called since Taken
// returned taken: somebody wants nothing to listen.
func (s *Listeners) Swap(to []Group, taken uint64) (old []*loop.Listener, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handedOver != taken {
		return nil, false
	}
	old = s.list
	s.list = nil
	for _, g := range to {
		s.list = append(s.list, g...)
	}
	return old, true
}

// Add puts a listener into the list.
func (s *Listeners) Add(l *loop.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(slices.Clip(s.list), l)
}

// Join puts a listener into the list, unless it is there, and takes those out that
// are gone with their cores. It fails if beside, of the same address, is not in
// the list any more.
func (s *Listeners) Join(beside, l *loop.Listener, gone []*loop.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := slices.Contains(s.list, beside)
	if ok && !slices.Contains(s.list, l) {
		s.list = append(slices.Clip(s.list), l)
	}
	s.forget(gone)
	return ok
}

// Forget takes listeners that end out of the list.
func (s *Listeners) Forget(gone []*loop.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(gone)
}

func (s *Listeners) forget(gone []*loop.Listener) {
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(l *loop.Listener) bool { return slices.Contains(gone, l) })
}
