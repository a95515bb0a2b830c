package auth

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Servers accepts with each method of its elements, most preferred first: a method is
// handled by the first element that has it for the type of the peer. It accepts nothing
// that no element accepts, so that a list of a cephx server alone stays one that
// requires cephx.
//
// Which method is used is the connector's choice among those. With method none in the
// list a peer need not prove anything: see [PerPeer] for how to allow that to some
// types only, and remember that a type, too, is only claimed.
//
// The elements must be set before the first use, and not nil.
type Servers []Server

// Methods implements [Server].
func (l Servers) Methods(ctx context.Context, peer wire.EntityType) []Method {
	var all []Method
	for _, s := range l {
		for _, m := range s.Methods(ctx, peer) {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Modes implements [Server]. For a method that no element has it announces the modes of
// all.
func (l Servers) Modes(ctx context.Context, peer wire.EntityType, m Method) (allowed, announced []Mode) {
	if s := l.of(ctx, peer, m); s != nil {
		return s.Modes(ctx, peer, m)
	}
	for _, s := range l {
		_, more := s.Modes(ctx, peer, m)
		for _, mode := range more {
			if !slices.Contains(announced, mode) {
				announced = append(announced, mode)
			}
		}
	}
	return nil, announced
}

// Start implements [Server].
func (l Servers) Start(ctx context.Context, peer wire.EntityType, m Method, mode Mode) (ServerExchange, error) {
	if s := l.of(ctx, peer, m); s != nil {
		return s.Start(ctx, peer, m, mode)
	}
	return nil, fmt.Errorf("%w: %v", ErrNoMethod, m)
}

// of returns the element that handles a method, nil if there is none.
func (l Servers) of(ctx context.Context, peer wire.EntityType, m Method) Server {
	for _, s := range l {
		if slices.Contains(s.Methods(ctx, peer), m) {
			return s
		}
	}
	return nil
}

// PerPeer accepts peers of each type with a server of its own. It is read only once it
// is in use.
type PerPeer struct {
	// Types are the servers for peers that say they are of that type. Nil refuses them.
	Types map[wire.EntityType]Server
	// Default is for all other types. Nil refuses them.
	Default Server
}

// Methods implements [Server].
func (p *PerPeer) Methods(ctx context.Context, peer wire.EntityType) []Method {
	return p.servers(peer).Methods(ctx, peer)
}

// Modes implements [Server].
func (p *PerPeer) Modes(ctx context.Context, peer wire.EntityType, m Method) (allowed, announced []Mode) {
	return p.servers(peer).Modes(ctx, peer, m)
}

// Start implements [Server].
func (p *PerPeer) Start(ctx context.Context, peer wire.EntityType, m Method, mode Mode) (ServerExchange, error) {
	return p.servers(peer).Start(ctx, peer, m, mode)
}

// servers has one element or none.
func (p *PerPeer) servers(peer wire.EntityType) Servers {
	s, ok := p.Types[peer]
	if !ok {
		s = p.Default
	}
	if s == nil {
		return nil
	}
	return Servers{s}
}
