package child

import (
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// Command is the hidden first argument of a helper process. Then come "client", or
// "server", the name of the server, the mode of its connections and its cores; the
// client of another program gets the name of its server.
const Command = "child"

// The modes of connections.
const (
	ModeCRC    = "crc"
	ModeSecure = "secure"
)

// Hello is the first line of a server process.
type Hello struct {
	Addr     string            `json:"addr"`            // IP:port
	Nonce    uint32            `json:"nonce,omitempty"` // of a messenger
	Settings map[string]string `json:"settings,omitempty"`
	PID      int               `json:"pid,omitempty"` // of the server, if it is another process
}

// ServerRequest is a line to a server process.
type ServerRequest struct {
	GCLoad *bool `json:"gc_load,omitempty"` // switch the load on or off
	Trim   bool  `json:"trim,omitempty"`    // return unused memory to the system
}

// ServerStats answers every ServerRequest.
type ServerStats struct {
	Syscalls *uint64 `json:"syscalls,omitempty"` // made so far, if the server counts them
}

// Request is a line to a client process; one of the fields besides Server is set. O says
// which connections to open.
type Request[O any] struct {
	Server string      `json:"server"` // owner of the connections
	Open   *O          `json:"open,omitempty"`
	Run    *load.Slice `json:"run,omitempty"`
	Close  bool        `json:"close,omitempty"`
}

// ClientRequest is a line to the client of echo servers.
type ClientRequest = Request[load.Options]

// Main is the main of a helper process. It calls serve with the function that ends the process
// once its parent is gone, and returns the exit status.
func Main(serve func(gone func()) error, stdout, stderr io.Writer) int {
	// Ctrl-C reaches all processes of a terminal; the parent ends its children.
	signal.Ignore(os.Interrupt)
	if err := serve(func() { os.Exit(cli.OK) }); err != nil {
		proc.Fail(stdout, err)
		fmt.Fprintln(stderr, "bench:", err)
		return cli.Failed
	}
	return cli.OK
}
