package uring

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// FileDriver is the part of a Driver that reads and writes files. What the text
// of Driver says of requests holds here as well: each has exactly one final
// completion, also after Cancel and after CloseFile, and until that the memory
// of its Vec is the kernel's.
//
// What opens, measures and names files is not here (Disk): such calls are
// rare, and may take long, so that they are made off the driver's thread.
//
// Requests on one file have no order: the next may end before the one before
// it. A sync covers the writes whose completion was taken before it was asked
// for, and nothing is promised of others.
//
// A list holds less than 2 GiB, else EINVAL. What a read or write has moved in part only is gone on with by the driver. A
// Cancel comes too late for a request that the device has begun.
type FileDriver interface {
	// AdoptFile takes over a descriptor of a regular file or block device.
	// CloseFile closes it.
	AdoptFile(fd int) (File, error)

	// ReadFile fills v from off on. Res is the number of bytes read, less than
	// v.Size only if the file ends there.
	ReadFile(f File, v *Vec, off int64, user uint64) (Op, error)

	// WriteFile writes all of v from off on. Res is v.Size, or a negative errno:
	// then any part of it may have been written.
	WriteFile(f File, v *Vec, off int64, user uint64, flags WriteFlags) (Op, error)

	// SyncFile makes durable what was written. Res is 0 or a negative errno.
	// After an error what was not durable may be lost although a later sync
	// succeeds: the kernel tells of it once.
	SyncFile(f File, user uint64, flags SyncFlags) (Op, error)

	// AllocateFile reserves blocks for n bytes from off on, and grows the file as
	// far as that. Res is 0 or a negative errno.
	AllocateFile(f File, off, n int64, user uint64) (Op, error)

	// RegisterMemory has the kernel keep m pinned, so that requests with direct I/O whose
	// list is one piece of m cost less. Nothing else changes. It fails with
	// errors.ErrUnsupported where the driver cannot, and with another error where limits
	// are reached (RLIMIT_MEMLOCK, Config.RegisteredBytes): then requests work as before.
	// Memory that is registered cannot be unmapped; twice is as good as once.
	RegisterMemory(m *Memory) error

	// UnregisterMemory ends that; so does CloseDriver. Requests in flight are not
	// touched. It does nothing with memory that is not registered.
	UnregisterMemory(m *Memory)

	// DetachFile lets go of f without closing it and returns its descriptor.
	// Nothing may be in flight on f, else it fails with EBUSY.
	DetachFile(f File) (fd int, err error)

	// CloseFile cancels what is in flight on f, and closes it when the last of
	// that has ended. It takes no further request.
	CloseFile(f File)
}

// File is an open file of a driver. The zero File is invalid.
type File struct {
	sock  Socket
	align Alignment
}

// MakeFile builds the File of descriptor fd. It is for implementations of
// Driver outside this package, such as a simulated one.
func MakeFile(fd int, a Alignment) File { return File{sock: MakeSocket(fd), align: a} }

// FD is the descriptor, or -1 for the zero File.
func (f File) FD() int { return f.sock.FD() }

// Valid says whether f was handed out by a driver.
func (f File) Valid() bool { return f.sock.Valid() }

// Alignment is what requests on f must be aligned to.
func (f File) Alignment() Alignment { return f.align }

// Alignment is what direct I/O on a file must be aligned to, in bytes. The zero
// Alignment is that of a file whose I/O goes through the page cache.
type Alignment struct {
	Memory int `json:"memory"` // addresses of memory
	Offset int `json:"offset"` // offsets in the file, and lengths
}

// Direct says that I/O passes by the page cache.
func (a Alignment) Direct() bool { return a.Offset > 0 }

// WriteFlags modify WriteFile.
type WriteFlags uint8

const (
	// WriteDurable: the completion says that the bytes are durable, and what of
	// the file's metadata is needed to read them (RWF_DSYNC).
	WriteDurable WriteFlags = 1 << iota
	// WriteThenSync: a data sync follows the write, which covers whatever else was
	// written to the file, and one completion tells of both. The driver asks for
	// the sync when the write has ended: a link in the kernel's queue breaks
	// without a sign where the kernel takes only the first half of it.
	WriteThenSync
)

// SyncFlags modify SyncFile.
type SyncFlags uint8

// SyncData leaves out metadata that nobody needs to read the bytes, such as the
// time of the last change (fdatasync).
const SyncData SyncFlags = 1

// errTooLong is the error of a transfer whose result would not fit a Completion.
var errTooLong = fmt.Errorf("2 GiB or more at once: %w", unix.EINVAL)

// isFile says that k is a request on a file.
func (k Kind) isFile() bool { return k >= KindRead && k <= KindAllocate }

// tooLong says that a request with list v cannot be made.
func (k Kind) tooLong(v *Vec) bool { return k.transfers() && v.Size() > math.MaxInt32 }

// transfers says that k moves bytes.
func (k Kind) transfers() bool { return k == KindRead || k == KindWrite }

// fileRequest is what an operation on a file asks for.
type fileRequest struct {
	off    int64 // KindRead, KindWrite, KindAllocate: where it begins
	length int64 // KindAllocate; KindWrite: of the sync behind it, 0: all of the file
	grain  int32 // what a direct read ends at, 0: any byte
	flags  int32 // of preadv2 and pwritev2; KindSync: of IORING_OP_FSYNC
	job    *fileJob
}

// fileStep is what an operation on a file asks the kernel for.
type fileStep uint8

const (
	stepTransfer fileStep = iota
	stepSync
	stepAllocate
)

// step is what o asks the kernel for now.
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
		return int32(res), false // of a sync, too: it may have told of an error already
	}
	if o.step() != stepTransfer {
		return int32(o.sent), false // 0 but for WriteThenSync
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
		return -int32(unix.EIO), false // nothing was written, and the kernel does not say why
	}
	if o.bits&opCancel != 0 {
		return -int32(unix.ECANCELED), false
	}
	return 0, true
}

// begin fills in what a new operation on f asks for. The pointer o is good until
// the next add.
func (o *operation) begin(f File, off, length int64, flags int32) {
	o.file = fileRequest{off: off, length: length, grain: int32(f.align.Offset), flags: flags}
}

// beginWrite is begin for a write.
func (o *operation) beginWrite(f File, off int64, flags WriteFlags) {
	rwf := int32(0)
	if flags&WriteDurable != 0 {
		rwf = unix.RWF_DSYNC
	}
	o.begin(f, off, 0, rwf)
	if flags&WriteThenSync != 0 {
		o.bits |= opThenSync
	}
}
