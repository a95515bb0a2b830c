// Command bench compares the messenger's io_uring and epoll flavours, in msgr2 and in
// msgr1, with alternatives, end to end: package net with a goroutine per connection and
// the same frames; the floor, a bare echo of bytes that shows the cost of TCP alone; and the
// floor with whole requests (floor+store).
//
//	go run ./bench                # everything, a few minutes
//	go run ./bench --quick        # fewer loads, within a minute
//	go run ./bench --mode secure  # the same with AES-GCM
//	go run ./bench --storage      # servers that read and durably write a file
//	go run ./bench --rivals       # against other libraries, which bench/rivals has
//	go run ./bench --original     # against the messenger of Ceph, where its programs are
//	go run ./bench --growth       # up to 10 000 connections, and their memory
//	go run ./bench --json results.json --plot DIR
//	go run ./bench --show results.json
//
// A run is a list of cells: an operation, a payload, connections and depth. All servers are
// processes of their own and live at once; a client process loads them in turn, round by
// round, in alternating order, so that each ratio compares two servers at nearly the same
// moment. Servers and client are this same program, started with hidden arguments. They
// end with it, even if it is killed. The messenger runs with its default limits.
//
// Each reply brings the next request, so that a server is never without work. --pace
// issues requests at a rate instead: the servers have spare CPU, and a pause of a server
// delays all requests that are due meanwhile.
//
// In secure mode every frame is encrypted with AES-128-GCM, by the servers and
// by the client, which checks every reply; the floor and the servers of msgr1, which has no
// secure mode, stay as they are.
//
// The requests of --storage read blocks of a file, or overwrite them durably; the floor is a
// bare ring without frames. The client checks the bytes of the blocks, and reads
// acknowledged writes back.
package main
