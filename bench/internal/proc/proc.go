// Package proc starts helper processes that answer calls in JSON over their standard input and
// output. None of them outlives its parent: a child ends when its standard input closes, also
// while it is busy, and the kernel closes it when the parent dies.
package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"time"
)

// stopGrace is the time for a child to end after its standard input was closed. Then it is
// killed.
const stopGrace = 2 * time.Second

// ErrChildEnded says that a child process ended when it was still needed.
var ErrChildEnded = errors.New("child process ended")

// Child is a running helper process. It answers one call after the other; its methods may be used
// by any goroutine.
type Child struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	calls   *rpc.Client
	exited  chan struct{}
	exitErr error // valid once exited is closed
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Call calls a method of the child's service, and decodes the answer into result, which may be
// nil. When ctx ends first the child is killed.
func (c *Child) Call(ctx context.Context, method string, arg, result any) error {
	call := c.calls.Go(service+"."+method, arg, result, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		_ = c.cmd.Process.Kill() // fails only if it has ended already
		return fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
	}
	if said := rpc.ServerError(""); call.Error == nil || errors.As(call.Error, &said) {
		return c.named(call.Error)
	}
	select {
	case <-c.exited:
		return c.named(fmt.Errorf("%w: %w", ErrChildEnded, errors.Join(c.exitErr, call.Error)))
	case <-time.After(stopGrace):
		return c.named(call.Error)
	}
}

func (c *Child) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.name, err)
}

// Stop ends the child and waits until it is gone: first by closing its
// standard input, then by killing it.
func (c *Child) Stop() {
	c.stdin.Close()
	select {
	case <-c.exited:
	case <-time.After(stopGrace):
		_ = c.cmd.Process.Kill() // fails only if it has ended already
		<-c.exited
	}
	_ = c.calls.Close() // it may have been stopped before
}

// Start runs exe with args as a child, and decodes the answer of its method Hello into hello.
// Standard error is passed to stderr. However this process ends, the kernel closes the child's
// standard input, and with that the child ends (Serve).
func Start(ctx context.Context, name, exe string, args []string, stderr io.Writer, hello any) (*Child, error) {
	c := &Child{name: name, cmd: exec.Command(exe, args...), exited: make(chan struct{})}
	c.cmd.Stderr = stderr
	// Not StdoutPipe: Wait would close it under the reader.
	stdout, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.cmd.Stdout = theirs
	if c.stdin, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	theirs.Close()
	if err != nil {
		stdout.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.calls = jsonrpc.NewClient(stream{stdout, c.stdin, stdout})
	go func() {
		c.exitErr = c.cmd.Wait()
		close(c.exited)
	}()
	if err := c.Call(ctx, "Hello", struct{}{}, hello); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// stream has the two directions of a child as one.
type stream struct {
	io.Reader
	io.Writer
	io.Closer
}

// service is the name of a child's service.
const service = "Child"

// Serve is the child's side: it answers calls by the methods of a value, as package rpc has them,
// one after the other on the calling goroutine. One of them is Hello, which the parent calls first.
// When in closes the process ends, also while a method is busy: a child that has lost its parent
// leaves at once.
func Serve(in io.Reader, out io.Writer, methods any) error {
	s := rpc.NewServer()
	err := s.RegisterName(service, methods)
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, in) // an error is the end, too
		os.Exit(0)
	}()
	for codec := jsonrpc.NewServerCodec(stream{r, out, r}); err == nil; {
		err = s.ServeRequest(codec)
	}
	return errors.Join(errors.New("serve the parent"), err)
}
