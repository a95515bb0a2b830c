// Package child is the life of the benchmark's helper processes: the servers under test and the
// clients that load them. The benchmark starts each, and speaks to it in JSON lines (package
// proc). bench/rivals is another program of that kind, with servers that the library does not
// depend on.
package child

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
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

// Opening asks a client process for connections to a server.
type Opening struct {
	Server string       `json:"server"` // owner of the connections
	With   load.Options `json:"with"`
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

// Server is a running server.
type Server interface {
	// Addr returns where it listens.
	Addr() net.Addr
	// Close ends it. It is called once.
	Close() error
}

// Describer is a server with settings for the report, for example its backend.
type Describer interface{ Settings() map[string]string }

// Started avoids an interface that holds a nil pointer.
func Started[S Server](s S, err error) (Server, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ServeServer runs one server until stdin closes. With room it collects garbage at a memory limit
// alone, as with GOMEMLIMIT and GOGC=off: so many bytes above the memory of the process when the
// load on the collector begins.
func ServeServer(name string, room int64, start func() (Server, error), stdin io.Reader, stdout io.Writer) error {
	s, err := start()
	if err != nil {
		return fmt.Errorf("start server %s: %w", name, err)
	}
	defer func() { _ = s.Close() }() // the process ends with it
	return proc.Serve(stdin, stdout, &Process{s: s, gc: gcLoad{room: room}})
}

// Process is the service of a server process: its methods are for the parent.
type Process struct {
	s  Server
	gc gcLoad
}

// Hello describes the server.
func (p *Process) Hello(_ struct{}, hello *Hello) error {
	hello.Addr = p.s.Addr().String()
	if n, ok := p.s.(interface{ Nonce() uint32 }); ok {
		hello.Nonce = n.Nonce()
	}
	if d, ok := p.s.(Describer); ok {
		hello.Settings = d.Settings()
	}
	if other, ok := p.s.(interface{ PID() int }); ok {
		hello.PID = other.PID()
	}
	return nil
}

// GCLoad switches the load on the collector on or off.
func (p *Process) GCLoad(on bool, _ *struct{}) error {
	if on {
		p.gc.on()
	} else {
		p.gc.off()
	}
	return nil
}

// Trim returns unused memory to the system.
func (p *Process) Trim(struct{}, *struct{}) error {
	debug.FreeOSMemory()
	return nil
}

// NotCounted is the answer of [Process.Syscalls] for a server that does not count them. An
// answer of net/rpc in JSON is never null.
const NotCounted = -1

// Syscalls is the number of system calls that the server has made.
func (p *Process) Syscalls(_ struct{}, calls *int64) error {
	*calls = NotCounted
	if c, ok := p.s.(interface{ Syscalls() uint64 }); ok {
		*calls = int64(c.Syscalls())
	}
	return nil
}

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
func ServeClient(open func(context.Context, load.Options) (Load, error), stdin io.Reader, stdout io.Writer) error {
	debug.SetGCPercent(clientGCPercent)
	return proc.Serve(stdin, stdout, &Client{open: open, loads: map[string]Load{}})
}

// Client is the service of a client process: its methods are for the parent.
type Client struct {
	open  func(context.Context, load.Options) (Load, error)
	loads map[string]Load
}

var errOpen = errors.New("connections are open already, or none are")

// Hello says nothing.
func (c *Client) Hello(struct{}, *struct{}) error { return nil }

// Open opens the connections to a server.
func (c *Client) Open(o Opening, _ *struct{}) error {
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
func (c *Client) Run(s Slice, out *load.Result) (err error) {
	l := c.loads[s.Server]
	if l == nil {
		return errOpen
	}
	*out, err = l.Run(s.Slice)
	return err
}

// Close closes the connections to a server.
func (c *Client) Close(server string, _ *struct{}) error {
	l := c.loads[server]
	if l == nil {
		return errOpen
	}
	l.Close()
	delete(c.loads, server)
	return nil
}

// Rival is a server of the module bench/rivals, which has dependencies that the library's
// module does not have.
type Rival struct {
	Name  string
	About string
	// OwnClient says that the client is there, too, as the server speaks neither msgr nor
	// bare bytes.
	OwnClient bool
}

// Rivals lists the rivals that echo.
func Rivals() []Rival {
	return []Rival{
		{Name: "netpoll", About: "cloudwego/netpoll, a poller and a goroutine per busy connection, the same frames"},
		{Name: "grpc", About: "gRPC-go, a stream of bytes per connection, its own client, no TLS and no checksums", OwnClient: true},
	}
}

const (
	gcHeapBytes  = 200 << 20              // live, full of pointers
	gcNodeBytes  = 64                     // per node
	gcAllocators = 2                      // goroutines
	gcPeriod     = time.Millisecond       // of each of them
	gcPerPeriod  = 64 << 10 / gcNodeBytes // nodes allocated each time
	gcPercent    = 10                     // so that even a short slice sees a collection
)

// gcNode is a piece of a heap that the collector has to follow pointer by pointer.
type gcNode struct {
	next, other *gcNode
	_           [gcNodeBytes - 16]byte
}

// gcLoad keeps the collector busy: goroutines that allocate steadily, 64 KiB
// each millisecond each, in a heap of 200 MB of pointers that is collected
// several times a second. It belongs to one goroutine.
type gcLoad struct {
	lists [gcAllocators]*gcNode // rings of nodes, replaced one after the other
	heap  int                   // bytes of them; 0: gcHeapBytes
	stop  chan struct{}
	wait  sync.WaitGroup
	room  int64 // bytes that are allocated between two collections; 0: a tenth of the heap

	percent int   // the settings to go back to
	limit   int64 // bytes
}

// on starts the load; the heap is built the first time.
func (g *gcLoad) on() {
	if g.stop != nil {
		return
	}
	if g.lists[0] == nil {
		for i := range g.lists {
			g.lists[i] = newRing(cmp.Or(g.heap, gcHeapBytes) / gcNodeBytes / gcAllocators)
		}
		runtime.GC()
	}
	if g.room > 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g.percent = debug.SetGCPercent(-1)
		g.limit = debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + g.room)
	} else {
		g.percent = debug.SetGCPercent(gcPercent)
		g.limit = debug.SetMemoryLimit(-1) // it stays
	}
	g.stop = make(chan struct{})
	for i := range g.lists {
		g.wait.Go(func() { g.lists[i] = churn(g.lists[i], g.stop) })
	}
}

// off ends the load and returns when it has ended. The heap stays.
func (g *gcLoad) off() {
	if g.stop == nil {
		return
	}
	close(g.stop)
	g.wait.Wait()
	g.stop = nil
	debug.SetGCPercent(g.percent)
	debug.SetMemoryLimit(g.limit)
	runtime.GC() // ends the collection that may be under way: the next slice is another server's
}

func newRing(n int) *gcNode {
	first := &gcNode{}
	last := first
	for range n - 1 {
		last.next = &gcNode{other: last}
		last = last.next
	}
	last.next = first
	return first
}

// churn replaces nodes of a ring until stop closes and returns the place it got to.
func churn(at *gcNode, stop <-chan struct{}) *gcNode {
	tick := time.NewTicker(gcPeriod)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return at
		case <-tick.C:
		}
		for range gcPerPeriod {
			old := at.next
			at.next = &gcNode{next: old.next, other: at}
			old.next, old.other = nil, nil
			at = at.next
		}
	}
}
