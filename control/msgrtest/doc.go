// Package msgrtest plays the other side of a messenger under test. A Peer is the other end
// as a script, frame by frame, over a real TCP connection. Until waits for a condition that
// has no event.
//
// Package pair joins two messengers in memory.
package msgrtest
