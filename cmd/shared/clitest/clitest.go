package clitest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Must ends a test that cannot go on.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Listen accepts connections up to the end of the test, and returns its address. Each connection has a
// goroutine, which calls f and then closes it.
func Listen(t testing.TB, network, at string, f func(c net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen(network, at)
	Must(t, err)
	t.Cleanup(func() { Must(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

// Run runs a command in a directory, and must succeed.
func Run(t testing.TB, dir, command string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// InTime calls f with a limit of time for a call that it makes, and again with longer ones until it is
// true: on a busy machine a short limit may be over before what must come first.
func InTime(f func(limit time.Duration) bool) bool {
	for limit := 200 * time.Millisecond; limit < time.Minute; limit *= 4 {
		if f(limit) {
			return true
		}
	}
	return false
}

// AwaitEnd waits until the process of a pidfd has ended.
func AwaitEnd(t testing.TB, pidfd int) {
	t.Helper()
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR { // the runtime's own signals interrupt it
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000)
	}
	if err != nil || n != 1 {
		t.Fatalf("the process is still there: %d, %v", n, err)
	}
}

// stallLines are log lines of the watch of the cores.
var stallLines = regexp.MustCompile(`(?m)^.*msg="core (stalled|turns again)".*\n`)

// WithoutStalls is what a program has written, without log lines about cores that stand still. A machine
// that is busy for a second causes them; a core that really stands still fails the test by its missing work.
func WithoutStalls(text string) string { return stallLines.ReplaceAllString(text, "") }

// Check calls a program, which returns its exit status, with the words of args. The test fails
// unless it returns status, and its outputs contain stdout and stderr. With an empty stderr the
// program must not write there.
func Check(
	t testing.TB, p func(stdin io.Reader, stdout, stderr io.Writer, args []string) int,
	stdin, args string, status int, stdout, stderr string,
) {
	t.Helper()
	var out, errs Buffer
	got := p(strings.NewReader(stdin), &out, &errs, strings.Fields(args))
	said := WithoutStalls(errs.String())
	if got != status || !strings.Contains(out.String(), stdout) || !strings.Contains(said, stderr) || stderr == "" && said != "" {
		t.Errorf("%s: status %d, %.80q, %q; want %d, %.80q, %q", args, got, out.String(), said, status, stdout, stderr)
	}
}

// Full is an output on a full disk.
type Full struct{}

// Write implements io.Writer.
func (Full) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// asProgram marks a process of the test binary that is the program. Its children inherit it.
const asProgram = "RINGMSGR_TEST_AS_PROGRAM"

// Program is the TestMain of a program whose tests start it by Command or Start: in such a
// process it calls main. It does not return.
func Program(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// AsProgram has the processes that the program starts within this test be the program, too.
func AsProgram(t testing.TB) { t.Setenv(asProgram, "1") }

// Command is the program in a process of its own, to be started. TestMain must call Program.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	Must(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// Process is a program that Start has started. Its methods are for one goroutine at a time.
type Process struct {
	Stdout *bufio.Reader // its output

	t     testing.TB
	cmd   *exec.Cmd
	errs  Buffer
	ended bool
}

// Buffer is an output that a program fills while a test reads it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is the output so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Start starts the program. The test's end kills it if it still runs; a test that fails shows
// its standard error.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return begin(t, Command(t, args...))
}

func begin(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd}
	cmd.Stderr = &p.errs
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	p.Stdout = bufio.NewReader(out)
	t.Cleanup(func() {
		if p.Kill(); t.Failed() && p.Stderr() != "" {
			t.Logf("%q said: %s", cmd.Args[1:], p.Stderr())
		}
	})
	return p
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Line is the next line that it writes, without its end. It fails the test if there is none.
func (p *Process) Line() string {
	p.t.Helper()
	line, err := p.Stdout.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%q says nothing more than %q: %v: %s", p.cmd.Args[1:], line, err, p.Stderr())
	}
	return line[:len(line)-1]
}

// Stderr is its standard error so far.
func (p *Process) Stderr() string { return p.errs.String() }

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	Must(p.t, p.cmd.Process.Signal(s))
}

// Kill kills it, if it has not ended, and waits for that. It may be called on any goroutine
// of the test.
func (p *Process) Kill() {
	if !p.ended {
		p.ended = true
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // it was killed
	}
}

// Want waits for its end, which must be with that exit status. All that it writes to Stdout
// must have been read.
func (p *Process) Want(status int) {
	p.t.Helper()
	p.ended = true
	_ = p.cmd.Wait() // the status has the error
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("%q: %v, want status %d: %s", p.cmd.Args[1:], p.cmd.ProcessState, status, p.Stderr())
	}
}

// Sleeper starts a process that waits until the test ends, and returns its number. Its start, which
// takes CPU time, is over then.
func Sleeper(t testing.TB) (pid int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo; read line")
	_, err := cmd.StdinPipe() // nothing is written there
	Must(t, err)
	p := begin(t, cmd)
	p.Line()
	return p.PID()
}
