package uring

import (
	"runtime"
	"slices"
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
