package child

import (
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
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

// Hello is the first answer of a server process.
type Hello struct {
	Addr     string            `json:"addr"`            // IP:port
	Nonce    uint32            `json:"nonce,omitempty"` // of a messenger
	Settings map[string]string `json:"settings,omitempty"`
	PID      int               `json:"pid,omitempty"` // of the server, if it is another process
}

// Opening asks a client process for connections to a server. O says which.
type Opening[O any] struct {
	Server string `json:"server"` // owner of the connections
	With   O      `json:"with"`
}

// Slice asks a client process to load a server.
type Slice struct {
	Server string     `json:"server"`
	Slice  load.Slice `json:"slice"`
}

// Main is the main of a helper process. It calls serve, and returns the exit status.
func Main(serve func() error, stderr io.Writer) int {
	// Ctrl-C reaches all processes of a terminal; the parent ends its children.
	signal.Ignore(os.Interrupt)
	if err := serve(); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return cli.Failed
	}
	return cli.OK
}
