package probe

import "time"

// Inject disturbs a messenger at random, for tests of programs on it: its sockets fail, its
// handshakes take time, and it reads messages late (Ceph's ProtocolV1.cc, for both protocols).
// Sessions keep their promises. The zero value costs nothing.
type Inject struct {
	// Seed decides the disturbances; 0: a number of the messenger's Config.Rand. With one core
	// and the same order of operations, the same seed repeats them.
	Seed uint64
	// SocketFailures: one in this number of operations on sockets (sends and reads,
	// handshakes included) fails, which ends its socket; 0: none.
	SocketFailures int
	// Handshakes delays the steps of handshakes: the dial, an accepted socket, each write and
	// read. Timeouts.Handshake includes the delays.
	Handshakes Delay
	// Messages delays received messages, and all messages after them.
	Messages Delay
}

// Delay has a chance and a length: with Probability, from 0 to 1, a random time up to Max.
type Delay struct {
	Probability float64
	Max         time.Duration
}
