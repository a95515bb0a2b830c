package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// serveKV runs one key-value server on a directory until stdin closes. args are the program
// ringkv, and its engine.
func serveKV(name, dir string, args []string, stdin io.Reader, stdout io.Writer, gone func()) error {
	return child.ServeServer(name, func() (child.Server, error) {
		switch {
		case len(args) == 2:
			return child.Started(startRingKV(args[0], dir, args[1]))
		case name == kvNet || name == "net+each":
			return child.Started(kv.Serve(dir, name != kvNet))
		}
		return nil, fmt.Errorf("key-value server %q is not here", name)
	}, stdin, stdout, gone)
}

// serveKVClient runs the client of key-value servers until stdin closes, on one locked
// thread.
func serveKVClient(stdin io.Reader, stdout io.Writer, gone func()) error {
	runtime.LockOSThread()
	known := kv.Ledgers{}
	return child.ServeClient(func(ctx context.Context, o load.KVOptions) (child.Load, error) {
		l, err := load.OpenKV(ctx, o, known.Of(o.Addr, o.Size, o.Work.Keys))
		if err != nil {
			return nil, err // not an interface that holds a nil pointer
		}
		return l, nil
	}, stdin, stdout, gone)
}

// ringKV is cmd/ringkv, which runs as a process of its own: what is measured is what a user
// starts.
type ringKV struct {
	cmd     *exec.Cmd
	stdout  io.Closer
	addr    wire.Addr
	backend string
}

// errRingKV says that the program did not start.
var errRingKV = errors.New("ringkv does not say where it listens")

// startRingKV starts it. It is killed when the calling thread ends, to which the caller is
// bound from then on.
func startRingKV(program, dir, backend string) (*ringKV, error) {
	runtime.LockOSThread()
	cmd := exec.Command(program, "serve", "--dir", dir, "--listen", "v2:127.0.0.1:0", "--cores", "1", "--backend", backend)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &ringKV{cmd: cmd, stdout: stdout}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		err = r.parse(line)
	}
	if err != nil {
		_ = cmd.Process.Kill() // fails only if it has ended already
		return nil, errors.Join(err, cmd.Wait())
	}
	return r, nil
}

// parse reads the line "listening ADDRESS, cores N, backend ENGINE".
func (r *ringKV) parse(line string) (err error) {
	words, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	fields := strings.Split(words, ", ")
	if !ok || len(fields) != 3 {
		return fmt.Errorf("%w: %q", errRingKV, line)
	}
	r.backend = strings.TrimPrefix(fields[2], "backend ")
	r.addr, err = wire.ParseAddr(fields[0])
	return err
}

// Addr returns where it listens.
func (r *ringKV) Addr() net.Addr { return net.TCPAddrFromAddrPort(r.addr.AddrPort) }

// Nonce is that of its address.
func (r *ringKV) Nonce() uint32 { return r.addr.Nonce }

// PID is the process whose CPU and system calls count.
func (r *ringKV) PID() int { return r.cmd.Process.Pid }

// Settings says how it is used.
func (r *ringKV) Settings() map[string]string {
	return map[string]string{"backend": r.backend, "cores": "1"}
}

// Close ends it.
func (r *ringKV) Close() error {
	err := r.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, r.cmd.Wait())
}
