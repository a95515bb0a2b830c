// Package pair is for tests of programs on a messenger: a server and a client that are
// joined in memory, with their connection ready, in one line.
//
//	pair.Test(t, pair.Config{Serve: dispatcher}, func(t *testing.T, p *pair.Pair) {
//		reply, err := p.Conn.Call(p.Context, control.NewMessage(1000, []byte("hello"), nil))
//		...
//	})
//
// Both are whole messengers on a simulated network (dataplane/simnet): handshakes,
// sessions, cores, queues and bounds are the real ones; sockets and time are not. The
// test runs in a bubble of testing/synctest, where time passes only when everybody waits:
// a timeout of minutes takes no time. There are no ports, no descriptors and no privileges
// to be had, and nothing else on the machine disturbs.
//
// Faults are injected on the simulated hosts, by Pair.Do: connections that break,
// directions that are cut, processes that die; Pair.Restart has the server begin anew, with
// the disk that it had. What is about the session itself has more
// precise tools in package msgrtest, over real sockets; what must survive faults of the disk
// has package durabletest.
//
// The order in which the cores and the network do what is due at the same time comes from
// Config.Seed; that of goroutines does not, so that two runs may differ.
package pair
