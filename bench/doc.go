// Command bench compares the messenger's io_uring and epoll flavours with what
// else a Go program could use, end to end: plain package net with a goroutine
// per connection and the same frames, the floor, a bare echo of bytes that shows
// what TCP alone costs, the same with whole requests (floor+store), and the
// messenger's loop without its frames. Both flavours are there in msgr1, too.
//
//	go run ./bench            # everything, a few minutes
//	go run ./bench --quick    # fewer loads, within a minute
//	go run ./bench --mode secure # the same with AES-GCM
//	go run ./bench --codec    # AES-GCM of the frame codec, no messages
//	go run ./bench --storage  # servers that read and durably write a file
//	go run ./bench --storage kv # cmd/ringkv and other durable key-value servers
//	go run ./bench --storm 1000 # sessions that are cut at once and come back
//	go run ./bench --rivals   # against other libraries, which bench/rivals has
//	go run ./bench --growth   # more connections, and more cores
//	go run ./bench --figures dir # all that the documents show, with pictures
//	go run ./bench --json results.json
//	go run ./bench --show results.json
//
// Every server is a process of its own and all of them live at once; one
// client process loads them in turn, round by round, in alternating order, so
// that each ratio compares two servers at nearly the same moment. Servers and
// client are this same program, started with hidden arguments. They end when
// it does, however it ends. The messenger runs with its default limits.
//
// Each reply brings the next request, so that a server is never without work. --pace
// issues requests at a rate instead: that leaves CPU to be had, and shows what a server that
// stands still for a moment does to all that should have come meanwhile. --beside has
// other connections stream large messages through the same server.
//
// In secure mode every frame is encrypted with AES-128-GCM, by the servers and
// by the client, which checks every reply; the floor, the loop and the servers of
// msgr1, which has no such mode, stay as they are. Then the frame codec is compared with crypto/cipher, which it is built on, on one core
// and without any network.
//
// Storage servers (--storage) are compared in the same way. Their requests read blocks of a
// file, or overwrite them durably; the floor is a bare ring without frames. Key-value servers
// (--storage kv) are cmd/ringkv as it is started by a user, the same store behind package net
// and a lock, and stores of others behind gRPC, which bench/rivals has.
package main
