package interop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// patience is how long a real daemon may take for anything, on a machine that has
// much else to do.
const patience = time.Minute

// daemon is a real Ceph daemon that runs as our child, in the foreground.
type daemon struct {
	name string // mon.a, osd.0
	dir  string // of the cluster
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// startDaemon runs argv. The daemon ends with the test: Cleanup stops it by its
// pid.
func startDaemon(t *testing.T, dir, name string, argv ...string) *daemon {
	t.Helper()
	out, err := os.Create(filepath.Join(dir, name+".out"))
	check(t, err)
	defer out.Close()
	d := &daemon{name: name, dir: dir, cmd: exec.Command(argv[0], argv[1:]...), gone: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.Env = cephEnv()
	check(t, startTied(d.cmd, func() { close(d.gone) }))
	first := *d // d may be another process by then
	t.Cleanup(func() { first.stop(t) })
	return d
}

// startTied starts cmd so that the kernel kills it if this process dies,
// whatever becomes of the test. That signal is tied to the thread that forked,
// so this thread waits for the process, calls ended and does nothing else.
func startTied(cmd *exec.Cmd, ended func()) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // cmd.ProcessState has the outcome
			ended()
		}
	}()
	return <-started
}

// freeze stops the daemon, and returns when all of its threads stand still.
func (d *daemon) freeze(t *testing.T) {
	t.Helper()
	check(t, d.cmd.Process.Signal(syscall.SIGSTOP))
	if !await(patience, func() bool { return d.frozen(t) }) {
		t.Fatalf("%s does not stand still", d.name)
	}
}

// await asks ok every few milliseconds until it says yes, and returns false at the limit. One question may cost much.
func await(limit time.Duration, ok func() bool) bool {
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

func (d *daemon) frozen(t *testing.T) bool {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.cmd.Process.Pid))
	check(t, err)
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		_, state, _ := bytes.Cut(stat, []byte(") ")) // behind the name
		if err == nil && !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// thaw has the daemon go on.
func (d *daemon) thaw(t *testing.T) {
	t.Helper()
	check(t, d.cmd.Process.Signal(syscall.SIGCONT))
}

// kill ends the daemon without a word.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // fails only if it is gone
	<-d.gone
}

// end has the daemon end in good order.
func (d *daemon) end(t *testing.T) {
	t.Helper()
	check(t, d.cmd.Process.Signal(syscall.SIGTERM))
	<-d.gone
}

// restart starts a daemon that has ended again. An OSD says its state when it returns.
func (d *daemon) restart(t *testing.T) {
	t.Helper()
	*d = *startDaemon(t, d.dir, d.name, d.cmd.Args...)
	if strings.HasPrefix(d.name, "osd.") {
		d.awaitOSD(t, func(osdStatus) bool { return true })
	}
}

type osdStatus struct{ State string }

// awaitOSD waits until a status of the OSD is accepted. Its first command may come before the monmap, as that of
// a tool (see ceph): it ends then, and is started again.
func (d *daemon) awaitOSD(t *testing.T, ok func(osdStatus) bool) {
	t.Helper()
	for tries := 1; ; tries++ {
		err := awaitAnswer(d, "status", 2*patience, ok)
		if err == nil {
			return
		}
		if tries == 5 || !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "mon_cmd_maybe_osd_create fail: 'wrong fsid'") {
			t.Fatal(err)
		}
		t.Logf("%s ended as it started, and is started again: wrong fsid", d.name)
		*d = *startDaemon(t, d.dir, d.name, d.cmd.Args...)
	}
}

// stop ends the daemon: politely, then not.
func (d *daemon) stop(t *testing.T) {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails only if it is gone
	_ = d.cmd.Process.Signal(syscall.SIGCONT) // a test that has failed leaves it frozen
	select {
	case <-d.gone:
	case <-time.After(10 * time.Second):
		t.Logf("%s ignores SIGTERM", d.name)
		_ = d.cmd.Process.Kill()
		<-d.gone
	}
}

// logFile is the daemon's log.
func (d *daemon) logFile() string { return filepath.Join(d.dir, d.name+".log") }

// set changes an option of the running daemon. It applies to what the daemon begins later.
func (d *daemon) set(t *testing.T, option, value string) {
	t.Helper()
	var answer any
	check(t, d.command(map[string]any{"prefix": "config set", "format": "json", "var": option, "val": []string{value}}, &answer))
}

// command sends a command to the daemon's admin socket and decodes its JSON answer.
func (d *daemon) command(command map[string]any, answer any) error {
	request, err := json.Marshal(command)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("unix", filepath.Join(d.dir, d.name+".asok"), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.SetDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = c.Write(append(request, 0))
	}
	var size uint32 // in network byte order
	if err == nil {
		err = binary.Read(c, binary.BigEndian, &size)
	}
	if err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(c, int64(size))).Decode(answer)
}

// errEnded: the daemon has ended.
var errEnded = errors.New("ended")

// awaitAnswer asks until ok accepts an answer, the daemon ends or limit passes. The error has the last answer.
func awaitAnswer[A any](d *daemon, prefix string, limit time.Duration, ok func(A) bool) error {
	var last, ended error
	ready := await(limit, func() bool {
		var a A
		if last = d.command(map[string]any{"prefix": prefix, "format": "json"}, &a); last == nil && ok(a) {
			return true
		}
		last = errors.Join(last, fmt.Errorf("last answer %+v", a))
		select {
		case <-d.gone:
			ended = fmt.Errorf("%s %w: %v\n%s", d.name, errEnded, d.cmd.ProcessState, d.tail())
		default:
		}
		return ended != nil
	})
	if !ready {
		return fmt.Errorf("%s is not ready after %v: %w\n%s", d.name, limit, last, d.tail())
	}
	return ended
}

// tail is the end of the daemon's output and log.
func (d *daemon) tail() []byte {
	out, _ := os.ReadFile(filepath.Join(d.dir, d.name+".out"))
	log, _ := os.ReadFile(d.logFile())
	all := bytes.TrimSpace(append(out, log...))
	return all[max(0, len(all)-4000):]
}

// cephEnv is our environment without the variables that change the behaviour of the tools.
func cephEnv() []string {
	env := []string{"CEPH_ARGS=", "LC_ALL=C"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// within is a context that ends with the test, or at the limit.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// wantFile checks that a file, which a program has written, has these bytes.
func wantFile(t *testing.T, who, file string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(file)
	check(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s reads %d bytes that are not the %d that went in", who, len(got), len(want))
	}
}

var check = drivertest.Must
