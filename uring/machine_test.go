package uring

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		f()
	}()
	<-done
}

func TestPinThreadTiesTheThreadToOneCPU(t *testing.T) {
	onThread(func() {
		cpus, err := AllowedCPUs()
		if err != nil || len(cpus) == 0 || !slices.IsSorted(cpus) {
			t.Errorf("AllowedCPUs: %v, %v", cpus, err)
			return
		}
		cpu := cpus[len(cpus)-1]
		if err := PinThread(cpu); err != nil {
			t.Error(err)
			return
		}
		if now, err := AllowedCPUs(); err != nil || !slices.Equal(now, []int{cpu}) {
			t.Errorf("pinned to %d, allowed %v, %v", cpu, now, err)
		}
		for _, wrong := range []int{-1, 1 << 20, 1023} {
			if wrong != cpu && PinThread(wrong) == nil {
				t.Errorf("pinned to CPU %d", wrong)
			}
		}
	})
}

func TestSharpTimersSetsTheSlackOfTheThread(t *testing.T) {
	onThread(func() {
		if err := SharpTimers(); err != nil {
			t.Error(err)
			return
		}
		if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != 1 {
			t.Errorf("timer slack %d ns, %v", slack, err)
		}
	})
}

// Matrix: IO-14
func TestProbeDescribesTheMachine(t *testing.T) {
	m := Probe()
	if m.Kernel == "" || m.Kernel == "unknown" || len(m.CPUs) == 0 || m.Files.Soft == 0 || m.Seccomp == "" {
		t.Errorf("%+v", m)
	}
	if m.Ring == (m.RingWhy != "") {
		t.Errorf("ring %v, but why %q", m.Ring, m.RingWhy)
	}
	if m.Flavour != Epoll && m.Ring && len(m.Features) != len(ringFeatures()) {
		t.Errorf("%d features, want %d", len(m.Features), len(ringFeatures()))
	}
	if len(m.Capabilities) != len(usefulCapabilities) {
		t.Errorf("%d capabilities", len(m.Capabilities))
	}
}

// Matrix: IO-13
func TestSetupErrorNamesCauseAndRemedy(t *testing.T) {
	for _, test := range []struct {
		errno       unix.Errno
		disabled    string
		says        []string
		unsupported bool
	}{
		{unix.ENOSYS, "", []string{"io_uring_setup", "no io_uring", "Linux 6.1", "epoll"}, true},
		{unix.EPERM, "2", []string{"kernel.io_uring_disabled is 2", "set it to 0"}, true},
		{unix.EPERM, "1", []string{"kernel.io_uring_disabled is 1", "kernel.io_uring_group"}, true},
		{unix.EPERM, "0", []string{"seccomp", "allow io_uring_setup"}, true},
		{unix.EACCES, "", []string{"security module"}, true},
		{unix.ENOMEM, "", []string{"RLIMIT_MEMLOCK", "ulimit -l"}, false},
		{unix.EINVAL, "", []string{"flag", "Linux 6.1"}, true},
		{unix.EMFILE, "", []string{"RLIMIT_NOFILE"}, false},
		{unix.EIO, "", []string{"refused"}, false},
	} {
		var err error = newSetupError("io_uring_setup", test.errno, test.disabled)
		for _, part := range append(test.says, test.errno.Error()) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: %q does not say %q", test.errno, err, part)
			}
		}
		if !errors.Is(err, test.errno) {
			t.Errorf("%v: does not unwrap to the errno", test.errno)
		}
		if errors.Is(err, errors.ErrUnsupported) != test.unsupported {
			t.Errorf("%v: unsupported is %v, want %v", test.errno, !test.unsupported, test.unsupported)
		}
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	bad := Config{Backend: "kqueue", Entries: 3}
	err := bad.validate()
	if err == nil || !errors.Is(err, unix.EINVAL) {
		t.Fatalf("Validate: %v", err)
	}
	for _, part := range []string{`"kqueue"`, "3 ring entries"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if _, err := Open(bad); err == nil {
		t.Error("Open took a wrong configuration")
	}
	if err := (&Config{}).validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
