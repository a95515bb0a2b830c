package binding

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Binder opens listeners. Its fields do not change once it is used; any goroutine
// may use it then.
type Binder struct {
	Cores   func() []*loop.Core         // those that can be given work, now
	Accept  func(*loop.Link)            // gets accepted sockets, on their core, where a Place names nobody
	Retries int                         // passes over all ports after the first one
	Pause   func(context.Context) error // waits between two passes
}

// Group are the listeners of one address.
type Group []*loop.Listener

// Addr is the address of the group.
func (g Group) Addr() netip.AddrPort { return g[0].Addr() }

// Place is an address to listen on.
type Place struct {
	Name   string // for errors
	IP     netip.Addr
	Ports  Ports
	Accept func(*loop.Link) // nil: that of the Binder
}

// ListenAll listens on all places, or on none.
func (b *Binder) ListenAll(ctx context.Context, places []Place) ([]Group, error) {
	var groups []Group
	for _, p := range places {
		at := *b
		if p.Accept != nil {
			at.Accept = p.Accept
		}
		group, err := at.listen(ctx, p.IP, p.Ports)
		if err != nil {
			for _, g := range groups {
				Close(g)
			}
			return nil, fmt.Errorf("bind %s: %w", p.Name, err)
		}
		groups = append(groups, group)
	}
	return groups, nil
}

// Close ends listeners.
func Close(list []*loop.Listener) {
	for _, l := range list {
		_ = l.Close() // fails only if the core is gone, and the listener with it
	}
}
