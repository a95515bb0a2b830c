// Ringmsgr talks to Ceph daemons and to other programs that speak the
// messenger protocols msgr2 and msgr1, and shows what the library makes of a machine.
//
//	ringmsgr ping [flags] ADDR     connect, say what was negotiated, measure round trips
//	ringmsgr serve [flags]         echo every message back
//	ringmsgr send [flags] ADDR     send messages to an echo, verify and measure them
//	ringmsgr top [flags] PID|SOCKET  watch the cores and connections of a running process
//	ringmsgr decode [flags] FILE   print the frames of a recording or a trace, and what is wrong
//	ringmsgr doctor [flags]        what this machine offers, what will be used, what helps
//	ringmsgr version [flags]       what this program was built from
//	ringmsgr completion SHELL      have the shell complete commands and flags
//	ringmsgr help COMMAND          the same as ringmsgr COMMAND -h
//
// Addresses are written as Ceph writes them: v2:127.0.0.1:3300/0. A host name will
// do, and what is left out is v2, port 3300, nonce 0: "localhost" is the address
// above. Flags may stand before or behind the address. "ringmsgr COMMAND -h" lists them.
//
// The exit status is 0 if the command did what it was asked for, 1 if it could
// not, 2 if it was called wrongly.
//
// # JSON
//
// With --json a command writes one JSON object per line to standard output, and
// nothing else. Fields may be added, never renamed or removed. Times are in
// microseconds where the name ends in _us, sizes in bytes. "ringmsgr COMMAND -h" shows
// the shape of what the command writes; "fields" in the records of decode are what a frame
// says, by its tag (package control/trace).
package main
