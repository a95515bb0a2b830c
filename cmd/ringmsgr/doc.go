// Ringmsgr talks to Ceph daemons and to other programs that speak the messenger protocols msgr2
// and msgr1, and shows which features of a machine the library uses.
//
//	ringmsgr ping [flags] ADDR     connect, print the result of the handshake, measure round trips
//	ringmsgr serve [flags]         echo every message back
//	ringmsgr send [flags] ADDR     send messages to an echo, verify and measure them
//	ringmsgr top [flags] PID|SOCKET  watch the cores and connections of a running process
//	ringmsgr decode [flags] FILE   print the frames of a recording or a trace, and their errors
//	ringmsgr doctor [flags]        the features of this machine, their use, and remedies
//	ringmsgr version [flags]       the sources of this program
//	ringmsgr completion SHELL      have the shell complete commands and flags
//	ringmsgr help COMMAND          the same as ringmsgr COMMAND -h
//
// Addresses have Ceph's form: v2:127.0.0.1:3300/0. A host name will do; the defaults are v2,
// port 3300 and nonce 0: "localhost" is the address above. Flags may stand before or after the
// address. "ringmsgr COMMAND -h" lists them.
//
// The exit status is 0 after success, 1 after a failure, 2 after a wrong call.
//
// # JSON
//
// With --json a command writes one JSON object per line to standard output, and no other text.
// Fields may be added, never renamed or removed. Times are in microseconds where the name ends
// in _us, sizes in bytes. "ringmsgr COMMAND -h" shows the shape; package control/trace has the
// "fields" in the records of decode, by tag.
package main
