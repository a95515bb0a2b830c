// Package pair is for tests of programs on a messenger: a server and a client that are
// joined in memory, with their connection ready, in one line.
//
//	pair.Test(t, pair.Config{Serve: dispatcher}, func(t *testing.T, p *pair.Pair) {
//		reply, err := p.Conn.Call(p.Context, control.NewMessage(1000, []byte("hello"), nil))
//		...
//	})
//
// Both are whole messengers on a simulated network (dataplane/simnet): handshakes, sessions,
// cores, queues and bounds are the real ones; sockets and time are not. The test runs in a
// bubble of testing/synctest, where time passes only when all goroutines wait: a timeout of
// minutes takes no time. A test needs no ports, descriptors or privileges, and the rest of the
// machine does not disturb it.
//
// Faults are injected on the simulated hosts, by Pair.Do: connections that break,
// directions that are cut, processes that die; Pair.Restart has the server begin anew, with
// the disk that it had. A test that plays a peer frame by frame has package msgrtest.
//
// Config.Seed decides the order of simultaneous work of the cores and the network, not that of
// goroutines, so that two runs may differ.
//
// # A server that keeps values by key
//
// A Durable is tested with the worst faults of its disk and its process: kills, power cuts,
// writes that are torn, lost, late or refused, a full disk, and flipped bits. It must have all
// values that it has acknowledged. A refused change may be there, too, from the next process
// on.
//
// An Audit asks for keys, at random and many at a time, and judges each answer. It asks a
// process under test, or the server of a World, which is on a simulated disk. Endure runs a
// World for each of many seeds, with every fault:
//
//	var seeds = pair.SeedFlags("store", 40)
//
//	pair.Endure(t, seeds, func(seed uint64) pair.Durable {
//		s := pair.Durable{Open: open, Ask: ask, Missing: errMissing, Refused: errRefused}
//		s.Pair.Seed = seed
//		return s
//	}, func(w *pair.World) { w.Flip("/data", errDamaged) })
//
// Simulate runs the faults that a test chooses, for example a full disk.
package pair
