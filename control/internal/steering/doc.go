// Package steering has the kernel bring new connections to the core that owns their session,
// and checks the result.
//
// Three things meet here:
//
//   - [Steerer] owns the programs (package bpf) of a messenger's listeners: one
//     for each listening address, all of them or none. It gives cores their
//     slots, pins peers, and counts. See steerer.go, and
//     takeover.go for cores that come and go and for programs that come from another
//     process.
//   - [Owner] is the owner hint: the core that owns a session, hidden in the
//     server_cookie. [Hints] is the use that connectors make of the hints of their
//     peers. See hints.go.
//   - [Steerer.Judge] compares the core at which a connection arrived with the rules.
//
// The package knows no messenger, session or listener, only descriptors, core numbers and
// addresses.
//
// # Goroutine-safety
//
// All methods may be called by any goroutine. A Steerer makes its system calls under a
// lock of its own, so its caller must hold no lock that other goroutines wait for. Judge
// and Hint are the exceptions: they read a copy of the facts that every change replaces,
// so they never wait and may be called under a lock. Logs are written without the lock.
//
// A listener's descriptor must stay open during a call: call Close before you close
// listeners that a Begin, Join or Follow may still read.
package steering
