// Package soak is a test that runs everything at once for a long time, and checks that memory,
// descriptors, goroutines and latencies do not grow. It exports no names.
//
//	go test ./bench/soak                                                  some seconds, in the gate
//	RINGMSGR_LONG=1h go test -v ./bench/soak -timeout 2h                  an hour, with a table
//
// With -soak.pace 3 pauses are three times as long, for a machine that others use.
//
// A server, a process of its own, answers to lossless sessions. It writes its log to a
// disk that is full. Beside the sessions, all the time:
//
//	what                                                       where
//	sessions of both protocols that verify each message,       client_test.go
//	across a proxy that cuts, resets, half-closes and stalls;
//	consumers that are slow; sessions whose latency is measured
//	sessions that keep data on the server, and know            client_test.go
//	what must be there
//	its files: buffered, direct, group commit, bounds that     storage_test.go
//	are reached, a disk that fails
//	storms: all sessions of the proxy are cut at once,         soak_test.go
//	cores that come and go
//	peers that send garbage, are silent, announce what never   hostile_test.go
//	comes, never read, or never stop asking
//
// It asserts: each message arrived once and in order in both directions; each read of a
// file brought the acknowledged bytes, and behind a write that failed the old bytes or the
// new ones; without the attackers there are in the end no more descriptors and goroutines
// than before, and no more resident, locked and pinned memory, but for the slack in
// soak_test.go; resident memory never passed the sum of the documented bounds and 64 MiB;
// and from 200 rows on the last quarter of the run has no more than the second one. Times
// are measured, and printed.
package soak
