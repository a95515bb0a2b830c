// Package nodetest breaks connections of a messenger at exact places.
//
// A Probe is a [probe.Probe]. A test arms it with breaks: a Point of the
// protocol, its occurrence, and an Action, such as "close the connection
// before the second CLIENT_IDENT is written". A break says when it was
// reached, and Probe.Check fails if one never was: a fault that did not fire
// proves nothing.
//
// A Node is a messenger with a Probe, with timers short enough for tests, and an Inbox of the
// messages and events that it received.
package nodetest
