package child

import (
	"context"
	"encoding/json"
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
func ServeClient[O any, L Load](open func(context.Context, O) (L, error), stdin io.Reader, stdout io.Writer, gone func()) error {
	debug.SetGCPercent(clientGCPercent)
	loads := map[string]Load{}
	return proc.Serve(stdin, stdout, struct{}{}, func(line json.RawMessage) (any, error) {
		var req Request[O]
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		l := loads[req.Server]
		switch {
		case req.Open != nil:
			if l != nil {
				return nil, errors.New("connections are open already")
			}
			l, err := open(context.Background(), *req.Open)
			if err == nil {
				loads[req.Server] = l
			}
			return nil, err
		case l == nil:
			return nil, errors.New("no connections are open")
		case req.Run != nil:
			return l.Run(*req.Run)
		case req.Close:
			l.Close()
			delete(loads, req.Server)
			return nil, nil
		}
		return nil, errors.New("empty request")
	}, gone)
}
