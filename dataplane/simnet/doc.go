// Package simnet is a network in memory for deterministic tests: hosts, TCP
// connections with delay, jitter and bounded windows, partitions, resets at any
// byte, half-open ends, and processes that die; and a disk for each host, which may
// lose power. Its Driver stands in for a ring, and Host.Run has whole messengers run
// over it.
//
// Everything happens on the goroutine that calls Network.Step and the drivers,
// at a virtual time that moves only between events, and every choice comes from
// one seeded source: the same seed gives the same run, byte for byte.
//
// The package is for tests, ours and those of users of the messenger. It
// imitates what a driver promises, not the kernel's timing.
package simnet
