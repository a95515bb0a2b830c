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
// is for that thread. Its goroutine stays locked to the thread (runtime.LockOSThread)
// until CloseDriver has returned. If the thread ends earlier, its requests get no
// answers.
//
// # Turns
//
// Requests are queued, and Wait gives them to the kernel and fetches the
// answers in one system call. Only three things cost calls of their own: Recv
// reads at once, a full queue is submitted when the next request does
// not fit, and Close, Reset and EndWriting first submit what was queued before them.
// Wait tells the Go scheduler only when it may sleep.
//
// A receive (KindReceive) needs no call of its own: the kernel fills buffers that all sockets of the
// driver share (Linux 6.12), and each answer names its part. For large data, and for data
// that must not be taken yet, watch the socket (KindReady) and read directly.
//
// # Memory
//
// Memory that the kernel uses while a request is in flight lies outside the Go heap:
// queues, message headers, gather lists, receive buffers. The one exception is the
// payload of a Vec, which may be Go memory: heap objects do not move, and the Vec keeps
// them alive. The same holds for small arguments that the kernel reads within a system call,
// which are fields of the driver. The kernel owns the memory of a request until the final completion of its
// Op. CloseDriver waits for all completions before it unmaps memory.
//
// # Files
//
// Reads, writes, syncs and reservations of blocks are requests like those on
// sockets (FileDriver): with the ring they go to the kernel in the same system call.
// Other threads open, measure, truncate and name files (Disk): these calls are rare and
// may wait for the device, and the kernel has no request for half of them. A driver adopts
// a file by two calls that do not wait, and closes it by one.
//
// Direct I/O pins the memory of each request until its end. Memory that a driver has
// registered (RegisterMemory) stays pinned; the ring sees by itself which requests use it.
// This spares CPU, most for large requests. At the limit on locked memory, and on kernels
// without it, requests work as before.
//
// Two features of the kernel are not used. A write and a sync that are linked in the queue
// (IOSQE_IO_LINK) cost as much as a sync that is asked for after the write, and the link
// breaks without a sign if the kernel takes the write and not yet the sync. With direct I/O one durable write
// costs less than both. Through the page cache one thread does all writes to a file, so the
// ring asks for a sync after several of them. Polled completions (IORING_SETUP_IOPOLL) need
// a ring without sockets, syncs and timeouts, and a thread that polls while the disk works:
// a core would have two rings and could not sleep. Few devices have the queues for it.
//
// The epoll engine (epoll_file.go) costs about as much as the ring for direct I/O on files that
// do not grow: preallocate them (KindAllocate, and one pass of writes), and overwrite. With AIO
// a write that makes a file longer blocks its thread. A buffered read that misses the cache
// takes a thread.
//
// # Flavours
//
// Without build tags, Open gives a ring driven by this package, or epoll, with
// the reason in Info.Fallback, where the kernel refuses one. With -tags epoll
// no ring code is linked. With -tags giouring the ring is driven through
// github.com/pawelgaczynski/giouring, which links only with
// -ldflags=-checklinkname=0. Flavour names the choice.
//
// A ring needs Linux 6.1; before, it would not pay. Features of later kernels are found by
// asking the kernel, not by its version: Info lists them, with the reason if one is not used.
package uring
