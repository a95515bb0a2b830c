// Package msgrtest helps to test what runs on a messenger, and the messenger
// itself: it breaks connections at exact places, counts what happens to each
// connection, and plays a peer that does what the test wants.
//
// A Probe is a [probe.Probe]. A test arms it with breaks: a Point of the
// protocol, its occurrence, and an Action, such as "close the connection
// before the second CLIENT_IDENT is written". A break says when it was
// reached, and Probe.Check fails if one never was: a fault that did not fire
// proves nothing.
//
// The Probe also keeps an Object for each connection in order of creation,
// with the counters that make two runs comparable. An accepted socket is an
// object from its first moment; if a connection that exists takes it over it
// ends as replaced. Probe.Await compares all objects with lines such as
//
//	established C(2,1,0,1) A(0,0,0,0) R(0,0)
//
// A Node is a messenger with a Probe, with timers short enough for tests, and
// an Inbox of what it received. A Peer is the other end as a script, frame by
// frame, over a real TCP connection; Ack and Keepalive are payloads that it can
// send in the data phase. A HostileProxy is the network in between that lets no
// connection live.
//
// Until waits for what no event tells. CheckLeaks fails a test that leaves goroutines or descriptors behind.
package msgrtest
