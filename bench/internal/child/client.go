package child

import (
	"context"
	"errors"
	"io"
	"runtime/debug"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
)

// clientGCPercent is for clients: some hardly allocate while they measure, and the allocations
// of the others are not measured.
const clientGCPercent = 400

// Load is a set of connections to one server, for example load.Load.
type Load interface {
	// Run loads the server for one slice and waits until every request is answered.
	// After an error the Load can only be closed.
	Run(load.Slice) (load.Result, error)
	// Close closes all connections.
	Close()
}

// ServeClient runs a client until stdin closes. All loads run on the calling
// goroutine, one at a time.
func ServeClient[O any, L Load](open func(context.Context, O) (L, error), stdin io.Reader, stdout io.Writer) error {
	debug.SetGCPercent(clientGCPercent)
	return proc.Serve(stdin, stdout, &Client[O, L]{open: open, loads: map[string]Load{}})
}

// Client is the service of a client process: its methods are for the parent.
type Client[O any, L Load] struct {
	open  func(context.Context, O) (L, error)
	loads map[string]Load
}

var errOpen = errors.New("connections are open already, or none are")

// Hello says nothing.
func (c *Client[O, L]) Hello(struct{}, *struct{}) error { return nil }

// Open opens the connections to a server.
func (c *Client[O, L]) Open(o Opening[O], _ *struct{}) error {
	if c.loads[o.Server] != nil {
		return errOpen
	}
	l, err := c.open(context.Background(), o.With)
	if err == nil {
		c.loads[o.Server] = l
	}
	return err
}

// Run loads a server for a slice.
func (c *Client[O, L]) Run(s Slice, out *load.Result) (err error) {
	l := c.loads[s.Server]
	if l == nil {
		return errOpen
	}
	*out, err = l.Run(s.Slice)
	return err
}

// Close closes the connections to a server.
func (c *Client[O, L]) Close(server string, _ *struct{}) error {
	l := c.loads[server]
	if l == nil {
		return errOpen
	}
	l.Close()
	delete(c.loads, server)
	return nil
}
