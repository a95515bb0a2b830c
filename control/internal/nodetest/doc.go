// Package nodetest breaks connections of a messenger at exact places, and counts what happens
// to each connection.
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
//	established C(2,1,0,1)
//
// A Node is a messenger with a Probe, with timers short enough for tests, and
// an Inbox of what it received. CheckLeaks fails a test that leaves goroutines or descriptors
// behind.
package nodetest
