package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// stopGrace is the time for a child to end after its standard input was closed. Then it is
// killed.
const stopGrace = 2 * time.Second

// ErrChildEnded says that a child process ended when it was still needed.
var ErrChildEnded = errors.New("child process ended")

// reply is one line from a child: a result or an error text.
type reply struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Child is a running helper process. Calls are answered one at a time; its
// methods may be used by any goroutine.
type Child struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	mu      sync.Mutex // one call at a time
	replies chan reply
	exited  chan struct{}
	exitErr error // valid once exited is closed
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Name returns the name given to Start.
func (c *Child) Name() string { return c.name }

// Call sends one request and decodes the answer into result, which may be nil.
// When ctx ends first the child is killed, because its answer would be taken
// for that to a later call.
func (c *Child) Call(ctx context.Context, request, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s: encode request: %w", c.name, err)
	}
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		return c.ended(err)
	}
	return c.receive(ctx, result)
}

// receive waits for one line of the child.
func (c *Child) receive(ctx context.Context, result any) error {
	select {
	case r, ok := <-c.replies:
		switch {
		case !ok:
			return c.ended(nil)
		case r.Error != "":
			return fmt.Errorf("%s: %s", c.name, r.Error)
		case result == nil:
			return nil
		}
		if err := json.Unmarshal(r.Result, result); err != nil {
			return fmt.Errorf("%s: decode answer: %w", c.name, err)
		}
		return nil
	case <-ctx.Done():
		_ = c.cmd.Process.Kill() // fails only if it has ended already
		return fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
	}
}

// ended describes the death of the child, for which cause is a symptom.
func (c *Child) ended(cause error) error {
	select {
	case <-c.exited:
		cause = c.exitErr
	case <-time.After(stopGrace):
	}
	if cause == nil {
		return fmt.Errorf("%s: %w", c.name, ErrChildEnded)
	}
	return fmt.Errorf("%s: %w: %w", c.name, ErrChildEnded, cause)
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
}

// read passes the child's lines on until its standard output closes.
func (c *Child) read(stdout io.Reader) {
	defer close(c.replies)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r reply
		if err := json.Unmarshal(line, &r); err != nil {
			r = reply{Error: fmt.Sprintf("unexpected output %q", line)}
		}
		c.replies <- r
	}
}

// Start runs exe with args as a child and waits for its first line, which is
// decoded into hello. Standard error is passed to stderr. However this process ends, the
// kernel closes the child's standard input, and with that the child ends (Serve).
func Start(ctx context.Context, name, exe string, args []string, stderr io.Writer, hello any) (*Child, error) {
	cmd := exec.Command(exe, args...)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// Not StdoutPipe: Wait would close it under the reader.
	stdout, childStdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd.Stdout = childStdout
	err = cmd.Start()
	childStdout.Close()
	if err != nil {
		stdin.Close()
		stdout.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &Child{name: name, cmd: cmd, stdin: stdin, replies: make(chan reply, 1), exited: make(chan struct{})}
	go func() {
		c.read(stdout)
		stdout.Close()
		c.exitErr = cmd.Wait()
		close(c.exited)
	}()
	if err := c.receive(ctx, hello); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}
