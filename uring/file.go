package uring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FileDriver is the part of a Driver that reads and writes files. The rules of Driver
// for requests hold here as well: each has exactly one final completion, also after
// Cancel and after CloseFile, and until then the kernel owns the memory of its Vec.
//
// Requests on one file have no order: a later one may end first. A sync covers the writes whose
// completion was taken before the sync was asked for, and no others.
//
// A list holds less than 2 GiB, and Off is not below 0, else EINVAL. The driver goes on with a read or write
// that the kernel has done in part. A Cancel comes too late for a request that the
// device has begun.
type FileDriver interface {
	// AdoptFile takes over a descriptor of a regular file or block device.
	// CloseFile closes it.
	AdoptFile(fd int) (File, error)

	// AskFile makes a request on f, by its Kind:
	//
	//	KindRead      fills Vec from Off on. Res is the number of bytes read, less than Vec.Size only if the file
	//	              ends there.
	//	KindWrite     writes all of Vec from Off on. Res is Vec.Size, or a negative errno: then any part of it may have
	//	              been written. If Durable, the completion says that the bytes are durable, with the metadata of
	//	              the file that is needed to read them (RWF_DSYNC). Through the page cache the kernel tells of a
	//	              failed write-back once, to any sync of the file: with one beside it a success means nothing.
	//	KindSync      makes earlier writes durable, without metadata that reads do not need (fdatasync). Res is 0 or a
	//	              negative errno. After an error these writes may be lost although a later sync succeeds: the
	//	              kernel reports the error once.
	//	KindAllocate  reserves blocks for Length bytes from Off on, and grows the file as far as that. Res is 0 or a
	//	              negative errno.
	AskFile(f File, r FileRequest) (Op, error)

	// RegisterMemory has the kernel keep m pinned, so that requests with direct I/O whose list
	// is one piece of m cost less. It has no other effect. It fails with errors.ErrUnsupported
	// where the driver cannot, and with another error at a limit: 64 MiB, or a sixteenth of
	// RLIMIT_MEMLOCK where that holds for a ring. Then requests work as before. Registered memory cannot be
	// unmapped. A second call for it has no effect.
	RegisterMemory(m *Memory) error

	// UnregisterMemory ends the registration; so does CloseDriver. Requests in flight go on. It
	// ignores memory that is not registered.
	UnregisterMemory(m *Memory)

	// CloseFile cancels the requests in flight on f, and closes f after the last of
	// them. f takes no further request.
	CloseFile(f File)
}

// FileRequest are the arguments of a request on a file, which FileDriver.AskFile explains by Kind. Another Kind is
// EINVAL. What a Kind has no use for has no effect. User comes back in the Completion.
type FileRequest struct {
	Kind    Kind
	Durable bool
	Vec     *Vec
	Off     int64
	Length  int64
	User    uint64
}

// File is an open file of a driver. The zero File is invalid.
type File struct {
	sock  Socket
	align Alignment
}

// MakeFile builds the File of descriptor fd. It is for implementations of Driver outside
// this package, for example a simulated one.
func MakeFile(fd int, a Alignment) File { return File{sock: MakeSocket(fd), align: a} }

// FD is the descriptor, or -1 for the zero File.
func (f File) FD() int { return f.sock.FD() }

// Valid says whether f was handed out by a driver.
func (f File) Valid() bool { return f.sock.Valid() }

// Alignment is the alignment that requests on f must have.
func (f File) Alignment() Alignment { return f.align }

// Alignment is the alignment of direct I/O on a file, in bytes. The zero Alignment is for
// a file whose I/O goes through the page cache.
type Alignment struct {
	Memory int `json:"memory"` // addresses of memory
	Offset int `json:"offset"` // offsets in the file, and lengths
}

// Direct says that I/O passes by the page cache.
func (a Alignment) Direct() bool { return a.Offset > 0 }

// errTooLong is the error of a transfer whose result would not fit a Completion.
var errTooLong = fmt.Errorf("2 GiB or more at once: %w", unix.EINVAL)

// isFile says that k is a request on a file.
func (k Kind) isFile() bool { return k >= KindRead && k <= KindAllocate }

// transfers says that k moves bytes.
func (k Kind) transfers() bool { return k == KindRead || k == KindWrite }

// fileRequest are the arguments of an operation on a file.
type fileRequest struct {
	off    int64 // KindRead, KindWrite, KindAllocate: where it begins
	length int64 // KindAllocate; KindWrite: of the sync after it
	grain  int32 // a direct read ends at a multiple of it, 0: at any byte
	flags  int32 // of preadv2 and pwritev2
	job    *fileJob
}

// fileStep is the request to the kernel that an operation on a file makes.
type fileStep uint8

const (
	stepTransfer fileStep = iota
	stepSync
	stepAllocate
)

// step is the next request of o to the kernel.
func (o *operation) step() fileStep {
	switch {
	case o.kind == KindAllocate:
		return stepAllocate
	case o.kind == KindSync, o.bits&opSyncing != 0:
		return stepSync
	}
	return stepTransfer
}

// progress takes the kernel's answer to a request on a file. It returns the result
// of the operation, or that it goes on.
func (o *operation) progress(res int64) (final int32, again bool) {
	if res < 0 {
		switch errno := unix.Errno(-res); {
		case o.bits&opCancel != 0 && (errno == unix.EINTR || errno == unix.EAGAIN):
			return -int32(unix.ECANCELED), false
		case o.step() != stepSync && (errno == unix.EINTR || errno == unix.EAGAIN):
			return 0, true
		}
		return int32(res), false // a sync is not repeated either: it may have reported an error already
	}
	if o.step() != stepTransfer {
		return int32(o.sent), false // 0 but for a write with a sync
	}
	size := o.vec.Size()
	o.sent += int(res)
	o.vec.advance(int(res))
	switch {
	case o.sent >= size && o.bits&opThenSync != 0:
		o.bits |= opSyncing
	case o.sent >= size:
		return int32(size), false
	case o.kind == KindRead && (res == 0 || o.file.grain > 0 && o.sent%int(o.file.grain) != 0):
		return int32(o.sent), false // the file ends here
	case res == 0:
		return -int32(unix.EIO), false // no byte was written, and the kernel gives no reason
	}
	if o.bits&opCancel != 0 {
		return -int32(unix.ECANCELED), false
	}
	return 0, true
}
