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
		c.Found = fmt.Sprintf("%s: no direct I/O (%s): everything goes through the page cache, and threads of the kernel wait for it", dir, s.DirectWhy)
		c.Remedy = "put files that are written durably on a file system with direct I/O, such as ext4 or XFS"
	case backend != uring.Epoll:
		c.Found = fmt.Sprintf("%s: direct I/O by the ring, in blocks of %d bytes", dir, s.Alignment.Offset)
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
