package uring

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Machine describes the facilities of a host for this package, for a report to its
// administrator.
type Machine struct {
	Flavour  Backend   `json:"flavour"`            // which engine this program was built for
	Kernel   string    `json:"kernel"`             // release
	CPUs     []int     `json:"cpus"`               // that this process may use
	Ring     bool      `json:"ring"`               // the kernel gave us one
	RingWhy  string    `json:"ring_why,omitempty"` // the reason, and the remedy
	Receive  bool      `json:"receive"`            // KindReceive works
	Features []Feature `json:"features,omitempty"` // of the ring

	Sysctls      map[string]string `json:"sysctls"`      // the relevant ones; "" where the kernel has none
	Memlock      Limit             `json:"memlock"`      // RLIMIT_MEMLOCK, bytes
	Files        Limit             `json:"files"`        // RLIMIT_NOFILE
	Capabilities []Capability      `json:"capabilities"` // effective ones that matter here
	Seccomp      string            `json:"seccomp"`      // off, strict, filter, or unknown
}

// Limit is a resource limit. Unlimited shows as the largest number.
type Limit struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Capability is one of the process's effective capabilities.
type Capability struct {
	Name string `json:"name"`
	Have bool   `json:"have"`
	For  string `json:"for"` // its purpose
}

var usefulCapabilities = [...]struct {
	bit       int
	name, use string
}{
	{unix.CAP_BPF, "CAP_BPF", "steering of connections by program"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "steering of a port range without listeners"},
	{unix.CAP_IPC_LOCK, "CAP_IPC_LOCK", "zero-copy sends and registered buffers beyond RLIMIT_MEMLOCK"},
}

var usefulSysctls = [...]string{
	"kernel.io_uring_disabled",
	"kernel.io_uring_group",
	"kernel.unprivileged_bpf_disabled",
	"net.core.somaxconn",
	"net.core.rmem_max",
	"net.core.wmem_max",
}

// Probe looks at the machine, and opens and closes a ring to find its features. Any goroutine
// may call it.
func Probe() Machine {
	m := Machine{Flavour: Flavour, Kernel: kernelRelease(), Sysctls: map[string]string{}}
	m.CPUs, _ = AllowedCPUs() // an error shows as no CPUs
	probeRing(&m)
	for _, name := range usefulSysctls {
		m.Sysctls[name] = sysctl(strings.ReplaceAll(name, ".", "/"))
	}
	m.Memlock, m.Files = limit(unix.RLIMIT_MEMLOCK), limit(unix.RLIMIT_NOFILE)
	for _, c := range usefulCapabilities {
		m.Capabilities = append(m.Capabilities, Capability{Name: c.name, Have: hasCapability(c.bit), For: c.use})
	}
	m.Seccomp = "unknown"
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err == nil {
		m.Seccomp = [...]string{"off", "strict", "filter"}[mode]
	}
	return m
}

// hasCapability says whether this thread has a capability.
func hasCapability(bit int) bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&h, &data[0]) == nil && data[bit/32].Effective&(1<<(bit%32)) != 0
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func limit(which int) Limit {
	var r unix.Rlimit
	if err := unix.Getrlimit(which, &r); err != nil {
		return Limit{}
	}
	return Limit{Soft: r.Cur, Hard: r.Max}
}

// AllowedCPUs returns the CPUs that the calling thread may run on, ascending.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs of this thread: %w", err)
	}
	cpus := make([]int, 0, set.Count())
	for cpu := 0; len(cpus) < cap(cpus); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// PinThread ties the calling OS thread to one CPU. The goroutine must be
// locked to the thread (runtime.LockOSThread) and should stay so until the thread ends,
// because the runtime does not undo it.
//
// Pin only to CPUs that nothing else uses: on shared ones it makes the slowest responses
// slower, because the thread cannot move away.
func PinThread(cpu int) error {
	var set unix.CPUSet
	if cpu < 0 || cpu >= 8*int(unsafe.Sizeof(set)) {
		return fmt.Errorf("pin thread to CPU %d: %w", cpu, unix.EINVAL)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// SharpTimers lets the timers of the calling OS thread fire when they are due
// (timer slack 1 ns) instead of up to 50 microseconds later. Threads that this
// one creates inherit it. Goroutine and thread should be locked.
func SharpTimers() error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}
