package interop_test

import (
	"bytes"
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
	"syscall"
	"testing"
	"time"
)

// daemon is a real Ceph daemon that runs as our child, in the foreground.
type daemon struct {
	name string // mon.a, osd.0
	dir  string // of the cluster
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
	err  error         // of Wait; valid once gone is closed
}

// startDaemon runs argv. The daemon ends with the test, whatever becomes of the
// test: Cleanup stops it by its pid, and the kernel kills it if this process
// dies. That signal is tied to the thread that forked, so this thread waits for
// the daemon and does nothing else.
func startDaemon(t *testing.T, dir, name string, argv ...string) *daemon {
	t.Helper()
	out, err := os.Create(filepath.Join(dir, name+".out"))
	check(t, err)
	defer out.Close()
	d := &daemon{name: name, dir: dir, cmd: exec.Command(argv[0], argv[1:]...), gone: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.Env = cephEnv()
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.err = d.cmd.Wait()
			close(d.gone)
		}
	}()
	check(t, <-started)
	t.Cleanup(func() { d.stop(t) })
	return d
}

// stop ends the daemon: politely, then not.
func (d *daemon) stop(t *testing.T) {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails only if it is gone
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

// ask sends a command to the daemon's admin socket and decodes its JSON answer.
func (d *daemon) ask(prefix string, answer any) error {
	c, err := net.DialTimeout("unix", filepath.Join(d.dir, d.name+".asok"), 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	request, err := json.Marshal(map[string]string{"prefix": prefix, "format": "json"})
	if err != nil {
		return err
	}
	if _, err := c.Write(append(request, 0)); err != nil {
		return err
	}
	var size uint32 // in network byte order
	if err := binary.Read(c, binary.BigEndian, &size); err != nil {
		return err
	}
	reply, err := io.ReadAll(io.LimitReader(c, int64(size)))
	if err != nil {
		return err
	}
	return json.Unmarshal(reply, answer)
}

// waitFor asks until ok accepts an answer, the daemon ends or limit passes.
func waitFor[A any](t *testing.T, d *daemon, prefix string, limit time.Duration, ok func(A) bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		var a A
		err := d.ask(prefix, &a)
		if err == nil && ok(a) {
			return
		}
		last = errors.Join(err, fmt.Errorf("last answer %+v", a))
		select {
		case <-tick.C:
		case <-d.gone:
			t.Fatalf("%s ended: %v\n%s", d.name, d.err, d.tail())
		case <-deadline:
			t.Fatalf("%s is not ready after %v: %v\n%s", d.name, limit, last, d.tail())
		}
	}
}

// tail is the end of what the daemon said.
func (d *daemon) tail() []byte {
	out, _ := os.ReadFile(filepath.Join(d.dir, d.name+".out"))
	log, _ := os.ReadFile(d.logFile())
	all := bytes.TrimSpace(append(out, log...))
	return all[max(0, len(all)-4000):]
}

// cephEnv is our environment without what would change the tools' behaviour.
func cephEnv() []string {
	env := []string{"CEPH_ARGS=", "LC_ALL=C"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
