package binding

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Extend has a new core accept on all addresses, with a listener that another
// core can spare, or with one of its own.
func (b *Binder) Extend(s *Listeners, core *loop.Core) error {
	for _, group := range s.Groups() {
		l, gone, err := b.listenAt(group, core)
		if err != nil {
			return fmt.Errorf("core %d: listen on %v: %w", core.ID(), group.Addr(), err)
		}
		if !s.Join(group[0], l, gone) {
			_ = l.Close() // the list was taken meanwhile
		}
	}
	return nil
}

// listenAt has a new core accept on the address of a group. gone are those of the
// group that have ended with their cores.
func (b *Binder) listenAt(group Group, core *loop.Core) (l *loop.Listener, gone []*loop.Listener, err error) {
	open, gone, err := share(group)
	if err != nil {
		return nil, nil, err
	}
	if l = spare(open); l != nil {
		return l, gone, l.Move(core)
	}
	// If no socket is left, a new group begins.
	l, err = core.Listen(group.Addr(), uring.ListenOptions{ReusePort: true, Exclusive: len(open) == 0}, group[0].Accepted())
	return l, gone, err
}

// Widen opens one more socket of a group that came from another process, on a
// core. The caller has it join the list, or closes it.
func (b *Binder) Widen(group Group, core *loop.Core) (*loop.Listener, error) {
	if _, _, err := share(group); err != nil {
		return nil, err
	}
	return core.Listen(group.Addr(), uring.ListenOptions{ReusePort: true}, group[0].Accepted())
}

// share lets others listen on the address of a group, which a single socket does
// not by itself. gone are those of it that have ended with their cores.
func share(group Group) (open, gone []*loop.Listener, err error) {
	for _, l := range group {
		err := l.Share()
		switch {
		case err == nil:
			open = append(open, l)
		case ended(err):
			gone = append(gone, l)
		default:
			return nil, nil, err
		}
	}
	return open, gone, nil
}

// ended says that a listener was closed because its core ended.
func ended(err error) bool {
	return errors.Is(err, loop.ErrLinkClosed) || errors.Is(err, loop.ErrStopped)
}

// spare is a listener whose core has another one of the same address; nil if
// there is none.
func spare(group []*loop.Listener) *loop.Listener {
	seen := make(map[*loop.Core]bool)
	for _, l := range group {
		if seen[l.Core()] {
			return l
		}
		seen[l.Core()] = true
	}
	return nil
}

// Leave takes the listeners of a core away. They are closed if what waits at them
// moves to another listener then (closing); otherwise the cores that serve the
// fewest go on accepting from them. lost hears of each that this fails for.
func (b *Binder) Leave(s *Listeners, core *loop.Core, closing bool, lost func(*loop.Listener, error)) {
	all, others := s.All(), b.Cores()
	mine := slices.DeleteFunc(slices.Clone(all), func(l *loop.Listener) bool { return l.Core() != core })
	if closing {
		s.Forget(mine)
	}
	facts := make([]placement.Fact, len(others))
	for i, c := range others {
		for _, l := range all {
			if l.Core() == c {
				facts[i].Load++
			}
		}
	}
	for _, l := range mine {
		var err error
		if to := placement.Choose(facts, 0); closing || to < 0 {
			err = l.Close()
		} else {
			facts[to].Load++
			err = l.Move(others[to])
		}
		if err != nil && !ended(err) {
			lost(l, err)
		}
	}
}
