// Package steering has the kernel bring new connections to the core where they
// belong, and says afterwards whether it did.
//
// Three things meet here:
//
//   - [Steerer] owns the programs (package bpf) of a messenger's listeners: one
//     for each listening address, all of them or none. It gives cores their
//     slots, pins peers, and counts. See steerer.go, cores.go, pins.go, and
//     takeover.go for programs that come from another process.
//   - [Owner] is the owner hint: which core of how many owns a session, hidden
//     in the server_cookie. See cookie.go. [Hints] is what connectors make of the
//     hints of their peers. See hints.go.
//   - [Steerer.Judge] compares where a connection arrived with what the rules
//     say. See judge.go.
//
// The package knows no messenger, session or listener: it is given descriptors,
// core numbers and addresses.
//
// # Goroutine-safety
//
// All methods may be called by any goroutine. A Steerer makes its system calls
// under a lock of its own, so its caller must hold no lock that others wait for.
// Judge and Hint are the exceptions: they read a copy of the facts that is
// replaced with every change, so they never wait and may be called under a lock.
// Logs are written when the lock is free.
//
// A listener's descriptor must stay open while it is handed over here: call
// Close before closing listeners that a Begin, Join or Follow may be looking at.
package steering
