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
//	ringmsgr help TOPIC            addresses, policies, exit, recording, or a command
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
// microseconds where the name ends in _us, sizes in bytes.
//
// ping:
//
//	{"peer":{"type":"mon","addrs":"[v2:...]","gid":0,"features":"0x..."},
//	 "protocol":"msgr2.1|msgr2.0|msgr1","auth":"none|cephx","mode":"crc|secure",
//	 "compression":"none","backend":"io_uring|epoll","handshake_us":N,
//	 "rtt_us":{"min":N,"p50":N,"p99":N,"max":N},"count":N}
//
// ping and send that fail; the stage is the one that was not completed:
//
//	{"error":"...","stage":"connect|banner|hello|auth|ident|session|keepalive"}
//
// serve, one line when it is ready and one at its end:
//
//	{"listening":"[v2:...]","name":"mon.a","policy":"...","cores":N,"backend":"...","fallback":"..."}
//	{"messages_in":N,"messages_out":N,"bytes_in":N,"bytes_out":N,"accepted":N,"accept_failures":N,"drained":true}
//
// with "handed_over" in the latter if a successor goes on, and with --verify
//
//	{...,"verified":N,"duplicates":0,"losses":0,"corrupt":0}
//
// top, one line for each interval; "..." stands for the same four rates:
//
//	{"time":"...","pid":N,"name":"...","addrs":"...","backend":"...","steering":"...","open":N,"half_open":N,
//	 "made":N,"in_flight":N,"seconds":N,"total":{"in_per_s":N,"out_per_s":N,"mb_in_per_s":N,"mb_out_per_s":N},
//	 "cores":[{"core":N,"conns":N,"busy":N,...,"writes_per_s":N,"syscalls_per_s":N,"stalls":N,"stalled":false}],
//	 "conns":[{"id":N,"peer":"...","state":"...","policy":"...","protocol":"...","mode":"...","core":N,...,
//	  "queued":N,"sent":N,"ack_lag":N,"in_seq":N,"out_seq":N,"reconnects":N,"error":"..."}]}
//
// send; if messages were under way when it failed, with "error" and "stage", and
// with "latency_us":null if no echo came:
//
//	{"peer":{...},"protocol":"...","auth":"...","mode":"...","backend":"...",
//	 "policy":"...","lossy":false,"conns":N,"depth":N,"size":N,
//	 "messages":N,"verified":N,"seconds":N,"messages_per_s":N,"mb_per_s":N,
//	 "latency_us":{"min":N,"p50":N,"p90":N,"p99":N,"p999":N,"max":N},
//	 "resident_bytes":N,"resident_peak_bytes":N,
//	 "reconnects":N,"duplicates":0,"losses":0,"corrupt":0}
//
// doctor:
//
//	{"ok":true,"backend":"io_uring|epoll","fallback":"...","receive":"auto|buffers|ready",
//	 "receive_why":"...","cores":N,
//	 "checks":[{"name":"...","state":"ok|note|problem","found":"...","remedy":"..."}],
//	 "machine":{...}}
//
// doctor --limits; a value of 0 means that nothing is bounded:
//
//	{"limits":[{"name":"...","value":N,"unit":"bytes|bytes/s|ns|messages|connections|peers|lines","per":"...","of":"..."}]}
//
// decode, one line for each record; "fields" are what a frame says, by its tag (package
// control/trace):
//
//	{"time":"...","socket":N,"event":"open|banner|frame|state|wrong|bad|lost|end","from":"connector|acceptor",
//	 "connector":"...","acceptor":"...","recorder":"...","protocol":"...","tag":"...","segments":[N,...],"fields":{...},
//	 "payload":["hex",...],"compressed":true,"aborted":true,"text":"...","count":N,"error":"..."}
//
// version; commit and modified are missing if they are not known:
//
//	{"version":"...","commit":"...","modified":false,"go":"...","platform":"linux/amd64"}
package main
