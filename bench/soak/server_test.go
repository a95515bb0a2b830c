package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// childCommand is the first argument of a server process. The directory of its files
// follows.
const childCommand = "soak-server"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		fmt.Fprintln(os.Stderr, serve(os.Args[2:], os.Stdin, os.Stdout))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Bounds of a server: small, so that they are reached.
const (
	dispatchBytes = 16 << 20
	sendBytes     = 32 << 20
	halfOpen      = 512
	// halfOpenBytes bounds a half-open connection.
	halfOpenBytes = 16 << 10
	// coreBytes bounds the buffers of a core.
	coreBytes = 16 << 20 // poolKeep of them when it is idle
	leastCore = 2        // cores of a server, at least
	mostCores = 4
)

// memoryBound is the sum of the documented bounds.
const memoryBound = dispatchBytes + sendBytes + halfOpen*halfOpenBytes + mostCores*coreBytes

// Ask is a request to a server: one of its fields is set, or none to have the sample alone.
type Ask struct {
	Cores   int  `json:"cores,omitempty"`   // begin to become so many
	Collect bool `json:"collect,omitempty"` // garbage, before the sample
}

// Sample answers every request.
type Sample struct {
	Resident   int64            `json:"resident"` // bytes
	Peak       int64            `json:"peak"`
	Heap       uint64           `json:"heap"`
	Files      int              `json:"files"`
	Goroutines int              `json:"goroutines"`
	Cores      int              `json:"cores"`
	Trouble    string           `json:"trouble,omitempty"` // with one of them
	Open       int              `json:"open"`
	Ready      int              `json:"ready"` // of these, all the time while Files were counted
	HalfOpen   int              `json:"half_open"`
	InFlight   int64            `json:"in_flight"`
	Sending    int64            `json:"sending"`
	Locked     int64            `json:"locked"`   // bytes, pinned ones too
	Ops        int64            `json:"ops"`      // requests on files
	Held       int64            `json:"held"`     // times that a connection waited for a file
	Reopened   int64            `json:"reopened"` // files of which a sync had failed
	Failed     int64            `json:"failed"`   // requests on files
	Counters   control.Counters `json:"counters"`
}

// server is one server process.
type server struct {
	m       *control.Messenger
	storage *storage

	changing sync.Mutex // held while cores come and go
	mu       sync.Mutex
	trouble  string // guarded by mu
}

// serve is the life of a server process.
func serve(args []string, stdin io.Reader, stdout io.Writer) error {
	// A log that cannot be written: the disk is full.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer full.Close()
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), mostCores+2))
	s := &server{}
	s.storage = &storage{dir: args[0], trouble: s.fail}
	lossless, lossy := control.StatefulServer(), control.StatelessServer()
	cfg := control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &lossy,
		Policies: map[wire.EntityType]control.Policy{wire.Client: lossless, wire.OSD: control.LosslessPeer()},
		Plane:    loop.Config{Cores: leastCore, PoolKeep: poolKeep}, Logger: slog.New(slog.NewTextHandler(full, nil)),
		Timeouts: timeouts, Sending: control.Sending{Bytes: sendBytes}, Door: control.Door{HalfOpen: halfOpen},
		// Aligned, so that blocks can be written as they are received.
		Receiving: control.Receiving{Bytes: dispatchBytes, Grace: 3 * time.Second, AlignFrom: 4096},
	}
	s.storage.start(&cfg.Plane)
	cfg.Plane.FileOps = 2 * fileOps
	cfg.Plane.Open = faulty.OpenWith(cfg.Plane.Opener(), strike)
	// Half of the messages come back from the core, the others from a goroutine.
	echo := &control.Dispatcher{Fast: s.fast, Queued: s.queued}
	if s.m, err = control.New(cfg); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.m.Shutdown(ctx) // the process ends with it
	}()
	if err := s.m.Start(echo); err != nil {
		return err
	}
	at := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
	if _, err := s.m.Bind(at, at.WithType(wire.AddrLegacy)); err != nil {
		return err
	}
	return proc.Serve(stdin, stdout, service{s})
}

// fast sends messages with even ids back from the core, if there is room at once. Requests on
// files stay on the core.
func (s *server) fast(c *control.Conn, m *control.Message) bool {
	if m.Type == orderType {
		s.storage.serve(c, m)
		return true
	}
	if m.TID%2 == 1 {
		return false
	}
	clone := m.Clone()
	switch err := c.Send(clone); {
	case err == nil:
		return true
	case errors.Is(err, control.ErrQueueFull):
		clone.Release()
		return false // it waits for room after the others
	default:
		clone.Release() // the session is over
		return true
	}
}

// queued waits for room; while it does, its connection is not read from.
func (s *server) queued(c *control.Conn, m *control.Message) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if clone := m.Clone(); c.SendContext(ctx, clone) != nil {
		clone.Release() // the session is over
	}
}

// service has the methods for the test.
type service struct{ *server }

func (s service) Hello(_ struct{}, at *wire.AddrVec) error {
	*at = s.m.Addrs()
	return nil
}

func (s service) Look(req Ask, out *Sample) (err error) {
	switch {
	case req.Cores > 0:
		if s.changing.TryLock() {
			go s.become(req.Cores)
		}
	case req.Collect:
		runtime.GC()
	}
	*out, err = s.sample()
	return err
}

// become adds cores, or removes the oldest, until there are n.
func (s *server) become(n int) {
	defer s.changing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	for cores := s.m.Cores(); len(cores) != n && err == nil; cores = s.m.Cores() {
		if len(cores) < n {
			_, err = s.m.AddCore(ctx)
		} else {
			err = s.m.RemoveCore(ctx, cores[0].ID())
		}
	}
	if err != nil {
		s.fail(err)
	}
}

// fail keeps the first error.
func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == "" {
		s.trouble = err.Error()
	}
}

func (s *server) sample() (Sample, error) {
	var out Sample
	mem, err := cli.ReadMemory(0)
	if err != nil {
		return out, err
	}
	before := s.readies()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return out, err
	}
	ready := 0
	for id, n := range s.readies() {
		if n > 0 && before[id] == n {
			ready++
		}
	}
	st, err := s.m.Stats()
	if err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	out = Sample{
		Resident: mem.Resident, Peak: mem.Peak, Heap: heap.HeapAlloc, Files: len(files), Goroutines: goroutines(),
		Cores: len(s.m.Cores()), Trouble: s.trouble, Open: st.Open, Ready: ready, HalfOpen: st.HalfOpen,
		InFlight: st.InFlight, Sending: st.Sending, Counters: st.Counters, Locked: mem.Locked,
	}
	for i := range st.Cores {
		out.Ops += st.Cores[i].Files.Ops
	}
	out.Held, out.Reopened, out.Failed = s.storage.held.Load(), s.storage.reopened.Load(), s.storage.failed.Load()
	return out, nil
}

// goroutines counts all but the threads of the epoll flavour that wait for files: each core keeps
// as many, up to a bound, as were once busy at the same time.
func goroutines() int {
	var profile strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a strings.Builder takes everything
	_, stacks, _ := strings.Cut(profile.String(), "\n")
	n := runtime.NumGoroutine()
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		var same int
		_, err := fmt.Sscanf(stack, "%d @", &same)
		if err == nil && strings.Contains(stack, "uring.(*filePool).serve") {
			n -= same
		}
	}
	return n
}

// readies has the number of times that each connection has become ready, 0 if it is not.
func (s *server) readies() map[uint64]uint64 {
	out := map[uint64]uint64{}
	for _, c := range s.m.Conns() {
		if st, err := c.Stats(); err == nil && c.State() == control.StateReady {
			out[c.ID()] = st.Counters.Ready
		}
	}
	return out
}

// process is a server as the test sees it.
type process struct {
	*proc.Child
	addr, msgr1 wire.Addr
}

func startServer(ctx context.Context, t *testing.T, args ...string) *process {
	t.Helper()
	// Not by its path: in an hour the file may have been removed.
	const exe = "/proc/self/exe"
	var addrs wire.AddrVec
	var said bytes.Buffer
	c, err := proc.Start(ctx, "server", exe, append([]string{childCommand}, args...), &said, &addrs)
	if err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	return &process{c, addrs.V2(), addrs.V1()}
}

func (p *process) ask(ctx context.Context, req Ask) (s Sample, err error) {
	err = p.Call(ctx, "Look", req, &s)
	return s, err
}
