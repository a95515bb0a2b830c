// Package mon has both ends of the protocol that monitors and their clients talk with each
// other beyond the messenger's protocol.
//
// A [Client] keeps a session with one of the monitors of a cluster: it logs in,
// goes to another monitor when the session is lost, keeps the monmap and the
// subscriptions, runs commands, and renews cephx tickets and, for daemons, the
// rotating secrets of their service before they expire. It uses the messenger
// that its user made, as one of its dispatchers.
//
// [NewServer] is the other end, as far as a program needs it to be a monitor to
// real clients: tickets, the monmap, commands.
//
// In msgr1 the handshake does not authenticate: both ends do it by messages, before
// all others.
//
// The encodings are those of daemons with all features of release 16.
package mon
