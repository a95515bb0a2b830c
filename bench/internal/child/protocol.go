package child

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// Command is the hidden first argument of a helper process. A Spec in JSON follows.
const Command = "child"

// Spec is the work of a helper process: it is a server, or a client.
type Spec struct {
	Client bool   `json:"client,omitempty"`
	Name   string `json:"name,omitempty"` // of a server, also of a client that it has for itself
	Secure bool   `json:"secure,omitempty"`
	Cores  int    `json:"cores,omitempty"`
	// Original is the directory of a release of Ceph, or a backend of ours, in --original.
	Original string          `json:"original,omitempty"`
	Msgr1    bool            `json:"msgr1,omitempty"`
	File     *storage.Config `json:"file,omitempty"` // in --storage
}

// Args are the arguments of such a process.
func (s Spec) Args() []string {
	text, _ := json.Marshal(s) // of plain values: cannot fail
	return []string{Command, string(text)}
}

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
func Main(args []string, serve func(Spec) error, stderr io.Writer) int {
	// Ctrl-C reaches all processes of a terminal; the parent ends its children.
	signal.Ignore(os.Interrupt)
	var s Spec
	err := json.Unmarshal([]byte(strings.Join(args, "")), &s)
	if err == nil {
		err = serve(s)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return cli.Failed
	}
	return cli.OK
}
