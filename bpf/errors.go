package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Sentinels for errors.Is. The first three are those of the standard library.
var (
	// ErrUnsupported: this kernel cannot do it.
	ErrUnsupported = errors.ErrUnsupported
	// ErrPermission: this process may not do it.
	ErrPermission = fs.ErrPermission
	// errClosed: the Steering was closed.
	errClosed = net.ErrClosed
	// errCore: the core number is outside the slots of the Steering.
	errCore = errors.New("core out of range")
	// errListener: the socket cannot be steered to.
	errListener = errors.New("not a listener that can be steered to")
)

// LoadError is the reason why the program could not be loaded, with the remedy. errors.Is
// answers for ErrPermission, ErrUnsupported and the kernel's errno.
type LoadError struct {
	// Missing is what this machine or process lacks: "CAP_BPF",
	// "RLIMIT_MEMLOCK", "initial user namespace", "bpf system call",
	// "SK_REUSEPORT (Linux 4.19)", "verifier's consent", or "permission".
	Missing string
	// Remedy is a sentence for the administrator.
	Remedy string
	// Err is the kernel's error.
	Err error

	kind error // ErrPermission, ErrUnsupported or nil
}

// Error has the missing feature, the kernel's answer and the remedy.
func (e *LoadError) Error() string {
	return fmt.Sprintf("load steering program: missing %s: %v; %s", e.Missing, e.Err, e.Remedy)
}

// Unwrap returns the sentinel, if any, and the cause.
func (e *LoadError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.Err}
	}
	return []error{e.kind, e.Err}
}

// host is the state of process and machine that diagnose needs.
type host struct {
	caps          uint64 // effective capabilities, a bit each
	initialUserNS bool
	memlock       uint64 // soft limit in bytes
	unprivileged  string // kernel.unprivileged_bpf_disabled, "" if there is none
}

// diagnose turns the error of a load into one that names the remedy.
func diagnose(err error, h host) error {
	e := &LoadError{Err: err}
	switch {
	case errors.Is(err, unix.ENOSYS):
		e.kind, e.Missing = ErrUnsupported, "bpf system call"
		e.Remedy = "use a kernel built with CONFIG_BPF_SYSCALL and a seccomp profile that allows bpf"
	case errors.As(err, new(*ebpf.VerifierError)):
		// Its errno, often EACCES, is not about permissions.
		e.kind, e.Missing = ErrUnsupported, "verifier's consent"
		e.Remedy = "use another kernel, and report this one with its version"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		// Without the library's guess at the reason.
		e.kind, e.Err = ErrPermission, unix.EPERM
		if errors.Is(err, unix.EACCES) {
			e.Err = unix.EACCES
		}
		e.Missing, e.Remedy = h.missingPermission()
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL):
		e.kind, e.Missing = ErrUnsupported, "SK_REUSEPORT (Linux 4.19)"
		e.Remedy = "use Linux 4.19 or later built with CONFIG_INET and CONFIG_BPF_SYSCALL"
	default:
		return fmt.Errorf("load steering program: %w", err)
	}
	return e
}

func (h host) missingPermission() (missing, remedy string) {
	const bpfOrAdmin = 1<<unix.CAP_BPF | 1<<unix.CAP_SYS_ADMIN
	switch {
	case h.caps&bpfOrAdmin == 0:
		remedy = "run as root, or grant it: setcap cap_bpf+ep PROGRAM, AmbientCapabilities=CAP_BPF in systemd (CAP_SYS_ADMIN before Linux 5.8)"
		if h.unprivileged != "" {
			remedy += "; kernel.unprivileged_bpf_disabled is " + h.unprivileged + ", and clearing it would not be enough for this kind of program"
		}
		return "CAP_BPF", remedy
	case !h.initialUserNS:
		return "initial user namespace", "the capability counts outside of user namespaces only: run the container without one"
	case h.memlock != unix.RLIM_INFINITY:
		return "RLIMIT_MEMLOCK", fmt.Sprintf("raise the limit of %d bytes (ulimit -l unlimited, LimitMEMLOCK=infinity "+
			"in systemd), which Linux before 5.11 charges for maps; otherwise see seccomp and security modules", h.memlock)
	}
	return "permission", "see seccomp, lockdown and security modules: the process has the capability"
}

// thisHost reads the state of the calling thread.
func thisHost() host {
	h := host{initialUserNS: true, memlock: unix.RLIM_INFINITY}
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if unix.Capget(&hdr, &data[0]) == nil {
		h.caps = uint64(data[0].Effective) | uint64(data[1].Effective)<<32
	}
	if m, err := os.ReadFile("/proc/self/uid_map"); err == nil {
		f := bytes.Fields(m)
		h.initialUserNS = len(f) == 3 && string(f[0]) == "0" && string(f[1]) == "0" && string(f[2]) == "4294967295"
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) == nil {
		h.memlock = lim.Cur
	}
	if v, err := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled"); err == nil {
		h.unprivileged = strings.TrimSpace(string(v))
	}
	return h
}
