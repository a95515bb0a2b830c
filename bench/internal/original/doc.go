// Package original measures Ceph's own messenger beside ours: the programs
// ceph_perf_msgr_server and ceph_perf_msgr_client of a release of Ceph (tool.go), and a server
// and a client on the messenger that do the same work (ours.go). A request is an MOSDOp
// with data, its answer an MOSDOpReply without.
//
// Their client begins anew for each slice, and ends without waiting for its last answers. CPU
// time and system calls are therefore the difference of two runs, a long one and one that only
// fills the queue: start, handshake and end cancel out. Operations/s are the client's own
// figure for the long run.
package original
