package main

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/uring"
)

// assessDisk says how a core reads and writes files of a directory, and at which cost.
func assessDisk(dir string, s uring.DiskSupport, err error, backend uring.Backend) check {
	c := check{Name: "disk", State: stateOK}
	switch {
	case err != nil:
		c.State, c.Found, c.Remedy = stateNote, fmt.Sprintf("--disk %s: %s", dir, cause(err)), "name a directory that can be written"
		return c
	case !s.Alignment.Direct():
		c.State = stateNote
		waits := "threads of the kernel wait" // those of the ring
		if backend == uring.Epoll {
			waits = "threads of the process wait"
		}
		c.Found = fmt.Sprintf("%s: no direct I/O (%s): everything is copied to and from the page cache, and %s for what is not in it and for syncs", dir, s.DirectWhy, waits)
		c.Remedy = "put files that are written durably on a file system with direct I/O, such as ext4 or XFS"
	case backend != uring.Epoll:
		c.Found = fmt.Sprintf("%s: direct I/O by the ring, in blocks of %d bytes", dir, s.Alignment.Offset)
		c.ringDisk(s)
	case s.AIO:
		c.Found = fmt.Sprintf("%s: direct I/O by Linux AIO, in blocks of %d bytes", dir, s.Alignment.Offset)
	default:
		c.State = stateNote
		c.Found = fmt.Sprintf("%s: no Linux AIO (%s): threads wait for direct I/O, for several times the CPU", dir, s.AIOWhy)
		c.Remedy = "allow io_uring, or raise fs.aio-max-nr"
	}
	if backend == uring.Epoll {
		switch {
		case !s.NowaitRead:
			c.State = stateNote
			c.Found += "; buffered reads are left to threads, even of what is cached"
		case !s.NowaitWrite:
			c.Found += "; buffered writes are left to threads"
		}
	}
	return c
}

// ringDisk says what a ring does beyond plain requests.
func (c *check) ringDisk(s uring.DiskSupport) {
	if s.Registered {
		c.Found += "; buffers stay pinned, as far as RLIMIT_MEMLOCK goes"
	} else {
		c.State = stateNote
		c.Found += fmt.Sprintf("; no registered buffers (%s): each request pins its memory, which costs some CPU", s.RegisteredWhy)
		c.Remedy = "Linux 5.19 or later, and RLIMIT_MEMLOCK (ulimit -l) above the bytes of the buffers"
	}
	if s.Polled {
		c.Found += "; polled completions work, and are not used: a core that polls its disk can neither sleep nor have sockets on that ring"
	} else {
		c.Found += fmt.Sprintf("; no polled completions (%s)", s.PolledWhy)
	}
}
