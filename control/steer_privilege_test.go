package control_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// textLog is a log in memory.
type textLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *textLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *textLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// worksUnsteered has messages echoed on every core of a server that cannot
// steer, and returns what it says about that.
func worksUnsteered(t *testing.T, load func(bpf.Config) (*bpf.Steering, error)) control.SteeringStats {
	t.Helper()
	log := &textLog{}
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: steerCores},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	must(t, err)
	endWithTest(t, m)
	if load != nil {
		m.SetLoader(load)
	}
	must(t, m.Start(&control.Dispatcher{Fast: echoBack}))
	at := bindLoopback(t, m)
	for i := range 8 {
		c := newSessionClient(t, i, m.Addrs()[0], nil)
		c.exchange(t, 1)
	}
	if got, _ := arrived(t, m, 8); len(got) != steerCores {
		t.Errorf("cores %v at %v", got, at)
	}
	if n := log.count("connections are not steered"); n != 1 {
		t.Errorf("logged %d times that nothing is steered", n)
	}
	st := statsOf(t, m)
	if st.Steering.Active || len(st.Steering.Groups) != 0 {
		t.Errorf("steering %+v", st.Steering)
	}
	if st.Counters.Hints.Given != 0 {
		t.Error("hints are given that lead nowhere")
	}
	return st.Steering
}

func TestALoaderThatFailsLeavesEverythingUnsteered(t *testing.T) {
	st := worksUnsteered(t, func(bpf.Config) (*bpf.Steering, error) {
		return nil, &bpf.LoadError{Missing: "CAP_BPF", Remedy: "grant it", Err: unix.EPERM}
	})
	if st.Why != unix.EPERM.Error() || st.Missing != "CAP_BPF" || st.Remedy != "grant it" {
		t.Errorf("steering %+v", st)
	}
}

const unprivilegedEnv = "RINGMSGR_TEST_UNPRIVILEGED"

// The test runs itself once more, in a process that cannot get the capability.
func TestWithoutThePrivilegeEverythingWorksAndStatsSayWhy(t *testing.T) {
	if _, err := bpf.Probe(); err == nil && os.Getenv(unprivilegedEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), unprivilegedEnv+"=1")
		if out, err := runWithout(cmd, unix.CAP_BPF, unix.CAP_SYS_ADMIN); err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if _, err := bpf.Probe(); !errors.Is(err, bpf.ErrPermission) {
		t.Fatalf("this process should lack the privilege: %v", err)
	}
	st := worksUnsteered(t, nil)
	if st.Missing != "CAP_BPF" || st.Remedy == "" || st.Why == "" {
		t.Errorf("steering %+v", st)
	}
}

// runWithout runs a command that can have the capabilities neither now nor
// later. The bounding set is a thread's.
func runWithout(cmd *exec.Cmd, caps ...int) (string, error) {
	return runPrepared(cmd, func() error {
		for _, c := range caps {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
				return err
			}
		}
		return nil
	})
}
