package sessions

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// DialsAtOnce bounds the connections of a messenger that are dialled, or in their handshake, at
// one address at the same time. Others wait for their turn.
const DialsAtOnce = 256

// dials has attempts at one address wait for each other. A server that thousands of clients
// dial at the same moment has to turn some away in their handshake (Config.Door), and the work
// of both sides is lost: one after the other the clients are ready much sooner.
//
// An attempt with a place gives it back within Config.Timeout and waits for no attempt in
// line, so that the line moves on. The zero value is ready. Any goroutine.
type dials struct {
	mu sync.Mutex
	at map[netip.AddrPort]*dialLine // guarded by mu, like those
}

type dialLine struct {
	busy    int
	waiting list.List // of chan struct{}, closed when it is its turn
}

// enter waits for a place at the address, or until ctx has ended: then the error is its cause
// and there is no place to leave.
func (d *dials) enter(ctx context.Context, at netip.AddrPort) error {
	d.mu.Lock()
	l := d.at[at]
	if l == nil {
		if d.at == nil {
			d.at = make(map[netip.AddrPort]*dialLine)
		}
		l = &dialLine{}
		d.at[at] = l
	}
	if l.busy < DialsAtOnce {
		l.busy++
		d.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	place := l.waiting.PushBack(turn)
	d.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-turn: // both at once
		d.next(at, l)
	default:
		l.waiting.Remove(place)
	}
	return context.Cause(ctx)
}

// leave gives a place back.
func (d *dials) leave(at netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next(at, d.at[at])
}

// next has the first in line take a place that is free now.
func (d *dials) next(at netip.AddrPort, l *dialLine) {
	if first := l.waiting.Front(); first != nil {
		close(l.waiting.Remove(first).(chan struct{}))
		return
	}
	if l.busy--; l.busy == 0 {
		delete(d.at, at)
	}
}
