// Package bpf decides in the kernel which core gets a new connection.
//
// Every core of a server listens on the same address with a socket of its own
// (SO_REUSEPORT). By default the kernel spreads connections over these listeners by
// a hash. This package loads an SK_REUSEPORT program that runs once per SYN and picks
// the listener by the first rule that matches:
//
//   - table: the peer's address and port, then its address alone, if the
//     control plane pinned it to a core ([Steering.Pin]);
//   - hint: the peer's source port modulo the number of cores, for ports of a
//     range that peers use for nothing else ([LocalHintRange], [HintPort]);
//   - CPU: the core of the CPU that took the SYN;
//   - otherwise the kernel's hash.
//
// A rule that names a core without a listener is counted as a miss and the
// next rule is asked. The program never refuses a connection.
//
// On Linux 5.14 and later, connections that wait in the accept queue of a
// listener that closes move to another listener of the group instead of being
// reset; [Info] says whether the kernel does this.
//
// # What it needs
//
// Linux 4.19 or later and CAP_BPF (CAP_SYS_ADMIN before 5.8), for [Load] only:
// the capability may be dropped afterwards on Linux 5.19 and later, and a
// process that inherits the descriptors ([FromFiles]) never needs it. Load
// fails with a [*LoadError] that names what is missing and the remedy.
// A server that cannot load the program works without it, unsteered. No C
// compiler is needed: the compiled programs are part of the package.
//
// # What it never does
//
// It owns no socket: it does not open, close or duplicate listeners. A listener closes
// when its core closes it, and its slot empties by itself. The package does not decide
// which core should own a session.
//
// # Goroutine-safety
//
// All methods of [Steering] may be called by any goroutine. Changes of slots
// and policy are serialised within one Steering. Two Steerings over the same
// maps (a hand-over between processes) share their state in the kernel, but
// only one of them may change slots and policy at a time.
package bpf
