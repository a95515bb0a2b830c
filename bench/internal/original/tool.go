package original

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

const (
	clientProgram = "ceph_perf_msgr_client"
	serverProgram = "ceph_perf_msgr_server"

	// lookEach is the interval at which a client is checked. It counts as hung after idleLooks
	// checks in a row without CPU time of client and server. Its own pause at the start is
	// shorter.
	lookEach  = 250 * time.Millisecond
	idleLooks = 8
	idleCPU   = 2 * time.Millisecond
	startsMax = 20                     // for one run
	probed    = 100 * time.Millisecond // a run of that length tells how fast a server is
)

// errTool is a failure of a program of Ceph.
var errTool = errors.New("the original failed")

// Release is a directory with both programs of a release of Ceph.
type Release struct{ Version, Dir string }

var versionIn = regexp.MustCompile(`ceph version (\d+\.\d+\.\d+)`)

// Find looks for the programs in the directories of path. Error: there are none.
func Find(path string) (found []Release, err error) {
	for _, dir := range filepath.SplitList(path) {
		client, noClient := exec.LookPath(filepath.Join(dir, clientProgram))
		_, noServer := exec.LookPath(filepath.Join(dir, serverProgram))
		if noClient != nil || noServer != nil || !filepath.IsAbs(dir) {
			continue
		}
		out, err := exec.Command(client, "--version").Output()
		version := versionIn.FindSubmatch(out)
		if err != nil || version == nil {
			return nil, fmt.Errorf("%w: %s --version says %q: %w", errTool, client, out, err)
		}
		if r := (Release{string(version[1]), dir}); !slices.ContainsFunc(found, func(f Release) bool { return f.Version == r.Version }) {
			found = append(found, r)
		}
	}
	if found == nil {
		const text = "%w: no directory of PATH has %s and %s (Debian's package ceph-test has)"
		return nil, fmt.Errorf(text, errTool, clientProgram, serverProgram)
	}
	return found, nil
}

// StartServer starts a server on a free port of the loopback address: that of a release, if
// how is its directory, or else ours, on that backend.
func StartServer(how string, msgr1 bool) (child.Server, error) {
	if !filepath.IsAbs(how) {
		return startServer(how, msgr1)
	}
	return startTheirs(filepath.Join(how, serverProgram), msgr1)
}

// OpenClient opens a client, how being as in StartServer.
func OpenClient(ctx context.Context, how string, o load.Options) (child.Load, error) {
	if !filepath.IsAbs(how) {
		return openClient(ctx, how, o)
	}
	return openTheirs(filepath.Join(how, clientProgram), o)
}

// command makes a program begin, without a configuration or a log, and end with this
// process. The calling goroutine has to be on the main thread: the kernel looks at that.
func command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "CEPH_CONF=/dev/null")
	if os.Getenv("CEPH_ARGS") == "" {
		cmd.Env = append(cmd.Env, "CEPH_ARGS=--debug-ms 0/0 --keyring /dev/null")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func address(addr string, msgr1 bool) string {
	if msgr1 {
		return "v1:" + addr
	}
	return "v2:" + addr
}

// theirServer implements child.Server.
type theirServer struct {
	cmd  *exec.Cmd
	addr net.Addr
}

// startTheirs starts their server, with one thread that answers.
func startTheirs(program string, msgr1 bool) (*theirServer, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &theirServer{addr: l.Addr()}
	l.Close()
	s.cmd = command(program, address(s.addr.String(), msgr1), "1", "0")
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < openTimeout; time.Sleep(lookEach / 10) {
		if c, err := net.Dial("tcp4", s.addr.String()); err == nil {
			c.Close()
			return s, nil
		}
	}
	_ = s.Close()
	return nil, fmt.Errorf("%w: %s does not listen", errTool, program)
}

// Addr returns where it listens.
func (s *theirServer) Addr() net.Addr { return s.addr }

// PID is that of their process.
func (s *theirServer) PID() int { return s.cmd.Process.Pid }

// Close ends it.
func (s *theirServer) Close() error {
	_ = s.cmd.Process.Kill() // fails only if it has ended
	_ = s.cmd.Wait()         // says that it was killed
	return nil
}

// theirClient implements child.Load.
type theirClient struct {
	program  string
	opt      load.Options
	fill     run     // the run that only fills the queue
	rate     float64 // operations per second of the last run
	restarts int     // of which no result tells yet
}

// run are the figures of one run of their client.
type run struct {
	ops            int // of all connections
	took           time.Duration
	server, client time.Duration // CPU
}

// openTheirs measures the run that only fills the queue, the median of three, and about how fast the server is.
func openTheirs(program string, o load.Options) (*theirClient, error) {
	c := &theirClient{program: program, opt: o}
	var fills [3]run
	var err error
	for i := 0; i < len(fills) && err == nil; i++ {
		fills[i], err = c.run(inFlight(o.Depth))
	}
	slices.SortFunc(fills[:], func(a, b run) int { return cmp.Compare(a.server+a.client, b.server+b.client) })
	c.fill = fills[1]
	for each, r := 4*inFlight(o.Depth), c.fill; err == nil && r.took < probed; each *= 4 {
		r, err = c.run(each)
	}
	return c, err
}

// inFlight is the number of open requests of their client for a concurrency.
func inFlight(concurrency int) int { return concurrency + 1 }

// Run implements child.Load. A slice without a window is the run that only fills the queue.
func (c *theirClient) Run(s load.Slice) (res load.Result, err error) {
	each := inFlight(c.opt.Depth)
	if s.Window > 0 {
		each += max(2*each, int(c.rate*s.Window.Seconds())/c.opt.Conns)
	}
	r, err := c.run(each)
	if err != nil {
		return res, err
	}
	res = load.Result{PerReply: 1, Total: uint64(r.ops), Restarts: c.restarts, Steady: true, Latency: cli.NewHistogram()}
	c.restarts = 0
	if s.Window > 0 {
		res.Bytes = uint64(r.ops - c.fill.ops)
		res.Window = time.Duration(float64(r.took) * float64(res.Bytes) / float64(r.ops)) // its own figure, without its start
		res.ServerCPU, res.ClientCPU = r.server-c.fill.server, r.client-c.fill.client
	}
	return res, nil
}

// Close implements child.Load.
func (c *theirClient) Close() {}

// run runs their client, with so many operations on each connection. At times it waits
// for ever at its start, or aborts at its end: it is started again then.
func (c *theirClient) run(each int) (r run, err error) {
	args := []string{address(c.opt.Addr, c.opt.Msgr1)}
	for _, n := range []int{c.opt.Conns, c.opt.Depth, each, 0, c.opt.Size} {
		args = append(args, strconv.Itoa(n))
	}
	for range startsMax {
		before, err := cli.ReadCPU(c.opt.PID)
		if err != nil {
			return r, err
		}
		var out bytes.Buffer
		cmd := command(c.program, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			return r, err
		}
		err = await(cmd, c.opt.PID)
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			c.restarts++
			continue
		}
		if err != nil {
			return r, fmt.Errorf("%w: %s: %w: %s", errTool, c.program, err, out.Bytes())
		}
		if r.ops, r.took, err = parse(out.Bytes()); err != nil {
			return r, err
		}
		r.server, err = cli.ReadCPU(c.opt.PID)
		r.server -= before
		r.client = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		c.rate = float64(r.ops) / r.took.Seconds()
		return r, err
	}
	return r, fmt.Errorf("%w: %s hung or aborted at %d starts", errTool, c.program, startsMax)
}

// await waits for the end of a client of a server, and kills it if both are idle for long.
func await(cmd *exec.Cmd, server int) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	var last time.Duration
	for idle := 0; ; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		used := time.Duration(0)
		for _, pid := range []int{cmd.Process.Pid, server} {
			t, _ := cli.ReadCPU(pid) // 0 if it has just ended
			used += t
		}
		if idle++; used-last > idleCPU {
			idle = 0
		}
		if last = used; idle == idleLooks {
			_ = cmd.Process.Kill() // fails only if it has ended
		}
	}
}

var total = regexp.MustCompile(`Total op (\d+) run time (\d+)us`)

// parse reads the output of their client at its end.
func parse(out []byte) (ops int, took time.Duration, err error) {
	m := total.FindSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("%w: no result in %q", errTool, out)
	}
	ops, err1 := strconv.Atoi(string(m[1]))
	us, err2 := strconv.ParseInt(string(m[2]), 10, 64)
	if err := errors.Join(err1, err2); err != nil || ops < 1 || us < 1 {
		return 0, 0, fmt.Errorf("%w: result %q: %w", errTool, m[0], err)
	}
	return ops, time.Duration(us) * time.Microsecond, nil
}
