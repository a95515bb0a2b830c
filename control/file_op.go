package control

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// FileOp is one request on a File. It is made by the user, best as a part of what it
// serves, must not be copied, and can be used again from Done on. Only its first use
// allocates. Owner: the core of the file, which looks at it behind Done: give it to another
// core, or to a pool of several, not before Done has returned.
type FileOp struct {
	// Done is called once for each request that was taken, when it has ended, on the core
	// that made it: never within the call that made it. The memory of the request is the
	// caller's again. It must not block, like Dispatcher.Fast. It is set before the first
	// request.
	Done func(c *Core, op *FileOp)
	// N is how many bytes were read or written. Of a write that failed nobody knows.
	N int
	// Err is nil, or why the request failed; io.EOF if the file ended before a read was
	// full. With unix.EBUSY the core has ended with a kernel that has not given the memory
	// back, which must not be used again.
	Err error
	// Data is what ReadBuffer has read, during Done; Message keeps it.
	Data []byte

	op      loop.FileOp
	file    *File
	request *Message // of ReadReply, retained; nil: none
	kept    bool     // Data, by Message, or a new request has taken its place
}

// ReadAt fills p from off on. p is the kernel's until Done. An error means that the
// request was not taken, here as below. On the core.
func (f *File) ReadAt(op *FileOp, p []byte, off int64) error {
	f.prepare(op)
	return f.asked(op, f.f.ReadAt(&op.op, p, off))
}

// ReadAtv fills several pieces, in order, 256 at most. On the core.
func (f *File) ReadAtv(op *FileOp, pieces [][]byte, off int64) error {
	f.prepare(op)
	return f.asked(op, f.f.ReadAtv(&op.op, pieces, off))
}

// ReadBuffer reads n bytes from off on into a buffer of the core, whatever direct I/O is
// aligned to. FileOp.Data is what was read, and FileOp.Message sends it without a copy.
// It is for reads that no peer has asked for; ReadReply is for the others. On the core.
func (f *File) ReadBuffer(op *FileOp, n int, off int64) error {
	f.prepare(op)
	return f.asked(op, f.f.ReadBuffer(&op.op, n, off))
}

// WriteAt writes p from off on. p must not change until Done: a received message is
// retained until then. With direct I/O p is aligned: the data of a received message is from
// Config.AlignFrom on, that of Core.NewMessage from 4 KiB on. On the core.
func (f *File) WriteAt(op *FileOp, p []byte, off int64, how Durability) error {
	f.prepare(op)
	return f.asked(op, f.f.WriteAt(&op.op, p, off, how))
}

// WriteAtv writes several pieces, in order, 256 at most. On the core.
func (f *File) WriteAtv(op *FileOp, pieces [][]byte, off int64, how Durability) error {
	f.prepare(op)
	return f.asked(op, f.f.WriteAtv(&op.op, pieces, off, how))
}

// Sync ends when a sync has succeeded that covers every write whose Done was called
// before. It shares that with others. On the core.
func (f *File) Sync(op *FileOp) error {
	f.prepare(op)
	return f.asked(op, f.f.Sync(&op.op))
}

// Allocate reserves blocks for n bytes from off on, and makes the file as long as that: to
// overwrite them is faster than to grow the file, and does not find the disk full. On the
// core.
func (f *File) Allocate(op *FileOp, off, n int64) error {
	f.prepare(op)
	return f.asked(op, f.f.Allocate(&op.op, off, n))
}

func (f *File) prepare(op *FileOp) {
	op.op.For = nil
	if op.op.Done == nil && op.Done != nil {
		op.op.Done = op.done
	}
}

// asked counts a request that was taken.
func (f *File) asked(op *FileOp, err error) error {
	if err != nil {
		return err
	}
	op.file, op.kept = f, true
	op.N, op.Err, op.Data = 0, nil, nil
	f.ops++
	if f.Full() {
		f.full = true
	}
	return nil
}

// done takes the end of the request.
func (op *FileOp) done(c *loop.Core, ended *loop.FileOp) {
	f := op.file
	f.ops--
	op.N, op.Err, op.Data, op.kept = ended.N, ended.Err, ended.Data, false
	lent := op.Data != nil
	op.endRequest()
	op.Done(coreOf(c), op)
	if lent && !op.kept { // the buffer goes back
		op.Data = nil
	}
	f.room()
}
