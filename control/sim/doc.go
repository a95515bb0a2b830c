// Package sim is the simulator: a test that runs whole messengers, each with
// several cores, over a simulated network and clock, and checks the messages and events of
// their users. It exports no names, and uses the public API of control.
//
//	go test ./control/sim                                         1000 seeds, and the checks of the simulator itself
//	go test ./control/sim -run 'TestSimulation$' -sim.seeds=100000 -timeout 2h
//	go test ./control/sim -run 'TestSimulation$' -sim.first=93 -sim.seeds=1 -sim.trace
//	go test ./control/sim -run 'TestSimulation$' -sim.seeds=6000 -sim.protocol=msgr1
//	go test ./control/sim -run 'TestAdversary$' -sim.seeds=10000 -timeout 2h
//
// One seed decides everything: the nodes and their policy, the traffic, the
// faults, and which of the possible next events happens. So a seed that fails fails again,
// and the third of these commands, which every failure prints, shows its course.
//
// A world (world_test.go) has a network (dataplane/simnet) and nodes
// (node_test.go): processes with a messenger, which end and begin anew. It moves
// by steps. A step is an event of the network, or a turn of one core, or, if there is
// neither, the time until the next of them is due. The cores have no threads
// (simnet.Host.Run); the network and the clocks are in memory. Only the messenger's
// goroutines are real: all of them run until they wait (testing/synctest) before the next
// step, one at a time (repeat_test.go).
//
// Where to read on:
//
//	the choices of a seed before it begins        plan_test.go
//	the random acts between the steps             act_test.go; node_test.go, for cores
//	faults within handshakes, and of drivers      act_test.go
//	messages of nodes, and their fate             traffic_test.go
//	requests, and replies that are due            calls_test.go
//	memory that users post                        postings_test.go
//	the callbacks, and the rules of each          events_test.go
//	the checks at the end                         check_test.go
//	events that some seed must have, seeds that
//	once found a bug, seeds in several processes  sim_test.go
//	bounds at which honest peers must not stop    live_test.go
//	a peer that chooses every field and moment    adversary_test.go, in msgr1 adversary_msgr1_test.go
//	the same seed runs the same course            repeat_test.go
//	bugs that the simulator must find             mutant_test.go, testdata/mutants.txt
//
// The checked promises: on a lossless connection each message arrives once and in order as
// long as both ends live, and a reset tells of lost messages; a message that Send took over
// is released exactly once; callbacks come on the core that owns the connection, in their
// order; a call ends once, with its own reply or an error that is true; memory that a user has
// back is not written; throttles keep their bounds, and a user who keeps the messages of one peer
// stops no other; and Shutdown leaves no connection, goroutine or memory.
package sim
