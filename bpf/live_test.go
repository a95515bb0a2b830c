package bpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// server is a listener of a group that answers every connection with its name.
type server struct {
	net.Listener
	done chan struct{}
}

func serve(t testing.TB, addr string, name byte) *server {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}), err)
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", addr)
	must(t, err)
	s := &server{l, make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte{name})
			c.Close()
		}
	}()
	t.Cleanup(s.stop)
	return s
}

// serveGroup serves one address with n listeners, each in the slot of a core and of its name.
func serveGroup(t testing.TB, s *Steering, n int, name func(core int) byte) (servers []*server, addr string) {
	t.Helper()
	addr = "127.0.0.1:0"
	for core := range n {
		l := serve(t, addr, name(core))
		if servers = append(servers, l); core == 0 {
			addr = l.Addr().String()
			l.with(t, s.Attach)
		}
		l.with(t, func(fd int) error { return s.Add(core, fd) })
	}
	return servers, addr
}

func byCore(core int) byte { return byte(core) }

// stop closes the listener, with what waits in its queue.
func (s *server) stop() {
	s.Close()
	<-s.done
}

func (s *server) with(t testing.TB, f func(fd int) error) {
	t.Helper()
	raw, err := s.Listener.(*net.TCPListener).SyscallConn()
	must(t, err)
	ctlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	must(t, errors.Join(ctlErr, err))
}

// clients connect in loops, from several addresses, and count the answers.
type clients struct {
	answers [256]atomic.Int64 // by the answering server's name
	total   atomic.Int64
	failed  atomic.Int64
	err     atomic.Value // the first error
	resets  atomic.Int64 // of connections without an answer, which are not among failed
	stopped atomic.Bool
	wg      sync.WaitGroup
}

func hammer(t testing.TB, to string, from ...string) *clients {
	t.Helper()
	c := &clients{}
	for _, ip := range from {
		c.wg.Go(func() {
			for !c.stopped.Load() {
				switch err := c.ask(to, ip); {
				case err == nil:
				case errors.Is(err, unix.ECONNRESET):
					c.resets.Add(1)
				default:
					c.failed.Add(1)
					c.err.CompareAndSwap(nil, err)
				}
			}
		})
	}
	t.Cleanup(c.stop)
	return c
}

func (c *clients) ask(to, from string) error {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	var name [1]byte
	if _, err := io.ReadFull(conn, name[:]); err != nil {
		return fmt.Errorf("connected, but: %w", err)
	}
	conn.(*net.TCPConn).SetLinger(0) // leaves no port waiting
	c.answers[name[0]].Add(1)
	c.total.Add(1)
	return nil
}

func (c *clients) stop() {
	c.stopped.Store(true)
	c.wg.Wait()
}

// await returns when n more connections were answered or failed.
func (c *clients) await(t testing.TB, n int64) {
	t.Helper()
	goal := c.total.Load() + n
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.total.Load() < goal && c.failed.Load() == 0 {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("the clients hang")
		}
	}
}

// check wants that no connection has failed, and no more than so many were reset.
func (c *clients) check(t testing.TB, resets int64) {
	t.Helper()
	c.stop()
	t.Logf("%d connections, %d reset", c.total.Load(), c.resets.Load())
	if n := c.resets.Load(); n > resets {
		t.Errorf("%d connections were reset, want %d at most", n, resets)
	}
	if c.failed.Load() != 0 || c.total.Load() == 0 {
		t.Errorf("%d of %d connections failed, the first: %v", c.failed.Load(), c.total.Load()+c.failed.Load(), c.err.Load())
	}
}

func TestCoresComeAndGoUnderLoad(t *testing.T) {
	const n = 3
	s := mustLoad(t, Config{MaxCores: n, Policy: defaultPolicy(n)})
	needMigration(t, s)
	servers, addr := serveGroup(t, s, n, byCore)
	pinned := "127.81.6.2"
	must(t, s.Pin(anyPort(netip.MustParseAddr(pinned)), 1))
	c := hammer(t, addr, "127.81.6.1", pinned, "127.81.6.3")
	for round := range 30 {
		core := round % n
		switch round % 4 {
		case 0: // restart: the new listener takes the slot, the old one closes
			newer := serve(t, addr, byte(core))
			newer.with(t, func(fd int) error { return s.Add(core, fd) })
			servers[core].stop()
			servers[core] = newer
		case 1: // drain, close, come back
			must(t, s.Drain(core))
			servers[core].stop()
			c.await(t, 20)
			servers[core] = serve(t, addr, byte(core))
			servers[core].with(t, func(fd int) error { return s.Add(core, fd) })
		case 2: // crash: nobody is told
			servers[core].stop()
			c.await(t, 20)
			servers[core] = serve(t, addr, byte(core))
			servers[core].with(t, func(fd int) error { return s.Add(core, fd) })
		case 3: // drain only, and back to the slot
			must(t, s.Drain(core))
			c.await(t, 20)
			servers[core].with(t, func(fd int) error { return s.Add(core, fd) })
		}
		c.await(t, 20)
	}
	// A handshake that the kernel ends on one CPU, in the moment in which its listener is
	// closed on another, is reset: the kernel moves what is in the listener's queue, and this
	// comes to it too late. That is one for some hundreds of listeners; without moving it
	// is 4 to 8 in this test.
	c.check(t, 2)
	counts := snapshot(t, s)
	if total := counts.Total(); total.Addr.Selected == 0 || total.CPU.Selected == 0 {
		t.Errorf("rules were not used:\n%v", counts)
	}
}

// While the policy changes, each connection is decided by one of the two: none
// is left to the hash, none goes to a core that neither names.
func TestPolicySwapsUnderLoad(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 4})
	cpus := s.Info().CPUs
	everyCPU := func(core int) []int {
		all := make([]int, cpus)
		for cpu := range all {
			all[cpu] = core
		}
		return all
	}
	_, addr := serveGroup(t, s, 4, byCore)
	first := Policy{Rules: UseCPU, Cores: 2, CPUs: everyCPU(1)}
	second := Policy{Rules: UseCPU | UseTable, Cores: 3, CPUs: everyCPU(2)}
	must(t, s.SetPolicy(first))
	c := hammer(t, addr, "127.81.7.1", "127.81.7.2")
	c.await(t, 50)
	for round := range 2000 {
		if round%2 == 0 {
			must(t, s.SetPolicy(second))
		} else {
			must(t, s.SetPolicy(first))
		}
		if round%100 == 0 {
			c.await(t, 5)
		}
	}
	must(t, s.SetPolicy(second))
	c.await(t, 50)
	c.check(t, 0)
	counts := snapshot(t, s)
	for core, n := range []bool{false, true, true, false} {
		if got := c.answers[core].Load() > 0; got != n {
			t.Errorf("core %d was used: %v, want %v", core, got, n)
		}
	}
	if total := counts.Total(); total.Missed() != 0 || counts.Hash != 0 {
		t.Errorf("decisions that no policy allows:\n%v", counts)
	}
}
