package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// translator forwards TCP connections from a port in one network to the same
// port in another, each from a port of its own choice, as a router that
// translates addresses does.
type translator struct {
	l   net.Listener
	to  string
	all sync.WaitGroup
}

// newTranslator takes a listening socket of the other network.
func newTranslator(t *testing.T, l net.Listener) {
	t.Helper()
	n := &translator{l: l, to: l.Addr().String()}
	n.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.all.Go(func() { n.forward(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.all.Wait()
	})
}

// forward goes on until one side ends.
func (n *translator) forward(in *net.TCPConn) {
	defer in.Close()
	c, err := net.Dial("tcp", n.to)
	if err != nil {
		return
	}
	out := c.(*net.TCPConn)
	defer out.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(in, out) // a reset is an end like any other
		_ = in.Close()
	}()
	_, _ = io.Copy(out, in)
	_ = out.Close()
	<-back
}

// everySecond cuts a connection at every second message that it receives, some
// times.
type everySecond struct {
	mu         sync.Mutex
	seen, cuts int
	most       int
}

// At implements probe.Probe.
func (e *everySecond) At(_ context.Context, at probe.Event) error {
	if at.Point != messageRead {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen++; e.seen%2 != 0 || e.cuts == e.most {
		return nil
	}
	e.cuts++
	return probe.ErrReset
}

func (e *everySecond) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cuts
}

// natEnv has the address of the server, in the process of the client.
const natEnv = "RINGMSGR_TEST_NAT_SERVER"

// Behind a translator the hint leads nowhere: the client notices it with the
// first one, and follows no further one. The client is a process of its own, in
// a network where the server's address is that of the translator.
func TestHintsEndWhereAddressesAreTranslated(t *testing.T) {
	needSteering(t)
	const cuts = 5
	if at := os.Getenv(natEnv); at != "" {
		behindTheTranslator(t, at, cuts)
		return
	}
	cut := &everySecond{most: cuts}
	policy := control.StatefulServer()
	server, at := steered(t, control.SteerHint, func(c *control.Config) { c.Default, c.Probe = &policy, cut })
	n := newNetwork(t)
	var l net.Listener
	var err error
	n.do(func() { l, err = listenHere(at.String()) })
	if err != nil {
		t.Fatal(err)
	}
	newTranslator(t, l)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), natEnv+"="+server.Addrs()[0].String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	n.do(func() { err = cmd.Run() })
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	_, report, _ := strings.Cut(out.String(), "hints: ")
	var h control.HintCounters
	if err := json.NewDecoder(strings.NewReader(report)).Decode(&h); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if want := (control.HintCounters{Dialled: 1, Translated: 1}); h != want {
		t.Errorf("client counts %+v, want %+v", h, want)
	}
	if n := cut.count(); n != cuts {
		t.Errorf("%d cuts, want %d", n, cuts)
	}
	// The server says why the session is where it is.
	if p := statsOf(t, server).Counters.Placement; p.OtherHint+p.Missed+p.Unsteered != 0 || p.Intended+p.NoHint != cuts+1 {
		t.Errorf("placement %+v", p)
	}
}

// behindTheTranslator is the client.
func behindTheTranslator(t *testing.T, at string, cuts int) {
	to, err := wire.ParseAddr(at)
	if err != nil {
		t.Fatal(err)
	}
	c := newSessionClient(t, 1, to, nil)
	c.exchange(t, 2*cuts+2)
	report, err := json.Marshal(statsOf(t, c.m).Counters.Hints)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("hints: %s\n", report)
}

// listenHere listens in the network of the calling thread.
func listenHere(at string) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	ip := addr.AddrPort().Addr().As4()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: ip, Port: addr.Port}); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, err
	}
	return net.FileListener(f)
}
