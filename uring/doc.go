// Package uring moves bytes between sockets, files and memory for one OS thread.
// It owns the ring of that thread: set-up and probing, the requests in flight,
// the receive buffers, the table of registered files, and the wake-up from
// other threads. The same calls run over epoll where there is no ring. It does
// not know what a frame is, and keeps no state outside the values that it returns.
// It starts goroutines in one case: the epoll engine has some that wait for files,
// which end with the driver.
//
// # Threads
//
// A Driver belongs to the OS thread that called Open: every method but Wake
// is for that thread, whose goroutine stays locked to it (runtime.LockOSThread)
// until after CloseDriver. A thread that ends before leaves its requests
// without answers.
//
// # Turns
//
// Requests are queued, and Wait gives them to the kernel and fetches the
// answers in one system call. Only three things cost calls of their own: Recv
// and Recvv read at once, a full queue is submitted when the next request does
// not fit, and Close and Shutdown first submit what was queued before them.
// Wait tells the Go scheduler only when it may sleep.
//
// Receive needs no call of its own: the kernel fills buffers that all sockets of the
// driver share, and the answer says which part is whose. Incremental buffers (Linux 6.12)
// are taken from one end to the other by whoever receives next; whole ones hold the bytes
// of one answer each, so that a few thousand small answers need as many. Watch (Ready) and
// read directly what is large, or must not come before it can be taken.
//
// # Memory
//
// Everything that the kernel reads or writes while a request is in flight
// lies outside the Go heap: queues, message headers, gather lists, receive
// buffers. The one exception is the payload that a Vec refers to, which may be
// Go memory: heap objects do not move, and the Vec keeps them alive. Memory of
// a request is the kernel's until the final completion of its Op. CloseDriver
// waits for all of them before it unmaps anything.
//
// # Files
//
// Reads, writes, syncs and reservations of blocks are requests like those on
// sockets (FileDriver): with the ring they go to the kernel in the same system call.
// Opening, measuring and naming files, and cutting them, is for other threads
// (Disk): these calls are rare and may wait for the device, and the kernel has no
// request for half of them. To adopt a file costs two calls that do not wait, to
// close one a call.
//
// Direct I/O pins the memory of each request, and lets go of it at its end. Memory that a
// driver has registered (RegisterMemory) stays pinned; the ring finds by itself which
// requests are on it. That spares CPU, the more the larger the request; where the limit on
// locked memory is reached, or the kernel cannot, requests are as before.
//
// Two ways of the kernel's are not used. A write and its sync linked in the queue
// (IOSQE_IO_LINK) cost as much as a sync that is asked for behind the write
// (BenchmarkWriteAndSync compares), and the link is cut without a sign where the kernel
// takes the one and not yet the other. One durable write (WriteDurable) costs less than
// both with direct I/O; when several go through the page cache, whose writes to a file have
// one thread, the ring asks for the sync behind the write. Polled completions
// (IORING_SETUP_IOPOLL) want a ring without sockets, syncs and timeouts, whose thread
// polls for as long as the disk works: a core would have two rings and could not sleep. Few
// devices have the queues for it: ProbeDisk tells.
//
// The epoll engine moves at once what the page cache holds (RWF_NOWAIT), gives direct
// I/O to Linux AIO, and lets a bounded number of threads wait for the rest. It costs
// about what the ring does for direct I/O on files that do not grow: preallocate
// them (AllocateFile, and writing once), and overwrite. With AIO a write that makes a
// file longer holds up its thread, and buffered reads that miss the cache cost a
// thread each.
//
// # Flavours
//
// Without build tags, Open gives a ring driven by this package, or epoll, with
// the reason in Info.Fallback, where the kernel refuses one. With -tags epoll
// no ring code is linked. With -tags giouring the ring is driven through
// github.com/pawelgaczynski/giouring, which links only with
// -ldflags=-checklinkname=0. Flavour names the choice.
//
// A ring asks for Linux 6.1 or later to be worth its while and works from
// 5.13. What the kernel can do is found by trying it, not by its version; Info lists every
// feature with the reason where it is not used, and Config.Off switches single
// ones off.
package uring
