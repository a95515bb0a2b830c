// Package binding listens: on which port, with which group of sockets, and who
// has them.
//
//   - [Binder] opens the listeners of all addresses, or of none, on ports that are
//     free.
//   - [Listeners] owns the list of what is open. A group of listeners follows the cores
//     that come and go.
//
// An address has one listener on each core, in one SO_REUSEPORT group; after a
// core was removed one core may have several.
//
// The package knows no messenger, no session and no steering: it is given cores
// and a function for accepted sockets. What it does on cores waits for them, so
// its functions are not for a core, and their caller holds no lock. The methods of
// Listeners never wait.
package binding
