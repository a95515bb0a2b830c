package loop

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Durability is when a write has ended.
type Durability uint8

// The kinds of durability.
const (
	// Written: when the file has the bytes. They may be lost when the power or the machine
	// fails.
	Written Durability = iota
	// Committed: when a sync that began after the write has succeeded, which it shares with
	// other writes (group commit).
	Committed
	// Through: when the bytes are durable by a sync of their own (RWF_DSYNC). For direct
	// I/O that overwrites on devices that need no flush, this is the fastest. Through the page
	// cache it is Committed, without FileOptions.CommitDelay: the kernel tells of a failed
	// write-back once, so that of two syncs beside each other one could succeed in vain.
	Through
)

// errOpInUse is returned for a FileOp whose last request has not ended.
var errOpInUse = errors.New("loop: request under way")

// FileOp is one request on a File. Its user embeds it, so that a request allocates nothing.
// It must not be copied, and can be used again from Done on. Owner: the core of the file,
// which reads it until Done has returned: only then give it to another core, or to a pool of
// several cores.
type FileOp struct {
	// Done is called once for each request that was taken, on the core, when it has
	// ended: never within the call that made it. Its memory is the caller's again. It must
	// not block. It is set before the first request.
	Done func(c *Core, op *FileOp)
	// N is the number of bytes read or written. After a failed write it is unknown.
	N int
	// Err is nil, or why the request failed; io.EOF if the file ended before a read
	// was full. With unix.EBUSY the core has ended with a kernel that has not given the
	// memory back, which must not be used again.
	Err error
	// Data are the bytes of ReadBuffer, valid during Done, or until the buffer of TakeBuffer
	// is given back.
	Data []byte
	// For is the account of ReadBuffer, nil: none. A server that answers a peer sets it to
	// the Account of the connection before the request.
	For *Account
	// Keeps, if not nil, is released at the end of the request, before Done: for example the
	// message that made it. Set it after the request was accepted.
	Keeps interface{ Release() }

	file    *File
	kind    uring.Kind
	how     Durability
	begun   bool // a request has not ended
	one     [1][]byte
	pieces  [][]byte
	off     int64
	length  int64    // bytes to move or to reserve
	lends   bool     // it is a ReadBuffer
	whose   *Account // For, or the core's own
	charged int64    // bytes promised to its account; own has them from its begin on
	own     *Buffer  // of ReadBuffer
	skip    int      // bytes in own before the requested ones
	vec     *uring.Vec
	next    *FileOp
}

// shares says that the write is durable by a sync that it shares.
func (op *FileOp) shares() bool {
	return op.how == Committed || op.how == Through && !op.file.align.Direct()
}

// maxTransfer bounds the bytes of one read or write: with whole blocks around them they
// fit a completion.
const maxTransfer = 1 << 30

// opLine is a list of requests, in order.
type opLine struct {
	first, last *FileOp
	n           int
}

func (l *opLine) push(op *FileOp) {
	op.next = nil
	if l.last == nil {
		l.first = op
	} else {
		l.last.next = op
	}
	l.last = op
	l.n++
}

func (l *opLine) pop() *FileOp {
	op := l.first
	if op == nil {
		return nil
	}
	if l.first = op.next; l.first == nil {
		l.last = nil
	}
	op.next = nil
	l.n--
	return op
}

// File is the file of the last request.
func (op *FileOp) File() *File { return op.file }

// ReadAt fills p, 1 GiB at most, from off on. p is the driver's until Done. An error means that the
// request was not taken.
func (f *File) ReadAt(op *FileOp, p []byte, off int64) error {
	op.one[0] = p
	return f.ask(op, uring.KindRead, op.one[:], off, int64(len(p)), Written)
}

// ReadBuffer reads n bytes from off on into a buffer of the core, with any alignment.
// FileOp.Data has the bytes. The buffer goes back after Done, unless TakeBuffer takes it. It
// counts against Config.FileBytes and FileOp.For until it is back: a request that finds no
// room there waits.
func (f *File) ReadBuffer(op *FileOp, n int, off int64) error {
	return f.ask(op, uring.KindRead, nil, off, int64(n), Written)
}

// WriteAt writes p, 1 GiB at most, from off on. p must not change until Done. An error means that the
// request was not taken.
func (f *File) WriteAt(op *FileOp, p []byte, off int64, how Durability) error {
	op.one[0] = p
	return f.ask(op, uring.KindWrite, op.one[:], off, int64(len(p)), how)
}

// WriteAtv writes several pieces, in order, 256 at most.
func (f *File) WriteAtv(op *FileOp, pieces [][]byte, off int64, how Durability) error {
	return f.ask(op, uring.KindWrite, pieces, off, total(pieces), how)
}

// Sync ends after a sync that covers every write whose Done was called before. Other
// requests share that sync.
func (f *File) Sync(op *FileOp) error {
	return f.ask(op, uring.KindSync, nil, 0, 0, Committed)
}

// Allocate reserves blocks for n bytes from off on, and makes the file that long. To
// overwrite them is faster than to grow the file, and does not find the disk full.
func (f *File) Allocate(op *FileOp, off, n int64) error {
	return f.ask(op, uring.KindAllocate, nil, off, n, Written)
}

func total(pieces [][]byte) (n int64) {
	for _, p := range pieces {
		n += int64(len(p))
	}
	return n
}

// TakeBuffer takes the buffer of ReadBuffer, in Done: Data stays valid until it is given
// back, by Core.TakeBack, or by a write that holds it (Write.Hold). nil: there is none.
func (op *FileOp) TakeBuffer() *Buffer {
	b := op.own
	op.own = nil
	return b
}

// ask takes a request.
func (f *File) ask(op *FileOp, kind uring.Kind, pieces [][]byte, off, n int64, how Durability) error {
	c := f.core
	c.assertOwner()
	switch {
	case op.begun:
		return errOpInUse
	case op.Done == nil:
		return fmt.Errorf("%s: a request without Done: %w", f.name, unix.EINVAL)
	case f.ended != nil:
		return fmt.Errorf("%s: %w", f.name, f.ended)
	case f.wrong != nil && kind != uring.KindRead:
		return f.wrong
	case off < 0 || n < 0 || len(pieces) > vecEntries || kind != uring.KindAllocate && n > maxTransfer:
		return fmt.Errorf("%s: %d bytes in %d pieces at %d: %w", f.name, n, len(pieces), off, unix.EINVAL)
	}
	if op.own != nil { // asked again in Done
		c.pool.put(op.own)
		op.own = nil
	}
	op.file, op.kind, op.how, op.pieces, op.off, op.length = f, kind, how, pieces, off, n
	op.N, op.Err, op.Data, op.skip, op.lends = 0, nil, nil, 0, false
	if kind == uring.KindRead || kind == uring.KindWrite {
		if err := f.choose(op); err != nil {
			op.pieces, op.one[0] = nil, nil
			return err
		}
	}
	op.begun = true
	f.ops++
	if !c.turnOf.ending {
		c.turnOf.asked++
	}
	c.stats.Files.Ops++
	switch {
	case kind == uring.KindSync:
		f.commit.add(op)
	case op.lends:
		c.reads.add(op)
	default:
		f.line.push(op)
		c.stats.Files.Waiting++
		f.pump()
	}
	f.full = f.full || f.Full()
	return nil
}

// pump gives the driver the requests in line, up to the bounds.
func (f *File) pump() {
	c := f.core
	defer c.reads.serve()
	for f.line.first != nil {
		switch op := f.line.first; {
		case f.busy >= f.opt.Ops:
			f.waited = true
			return
		case c.fileBusy >= c.cfg.FileOps:
			f.waited = true
			if !f.lined {
				f.lined = true
				c.fileLine = append(c.fileLine, f)
			}
			return
		case !c.turnOf.takes(op):
			f.nextTurn()
			return
		}
		op := f.takeFirst()
		if err := op.start(); err != nil {
			op.endLater(fmt.Errorf("%s: %w", f.name, err))
		}
	}
}

// takeFirst takes the first request out of the line.
func (f *File) takeFirst() *FileOp {
	op := f.line.pop()
	f.core.stats.Files.Waiting--
	if op.lends {
		op.whose.turn = false
		f.core.reads.look(op.whose)
	}
	return op
}

// start gives the request to the driver.
func (op *FileOp) start() (err error) {
	f, c := op.file, op.file.core
	if op.kind != uring.KindAllocate {
		if err = op.place(); err != nil {
			return err
		}
		if op.vec, err = c.vecs.get(); err != nil {
			return err
		}
		op.fill()
	}
	user := c.slot(op)
	if _, err = c.drv.AskFile(f.sock, uring.FileRequest{
		Kind: op.kind, Durable: op.how == Through && !op.shares(), Vec: op.vec, Off: op.off - int64(op.skip), Length: op.length, User: user,
	}); err != nil {
		c.freeEntry(user)
		op.putVec()
		return err
	}
	f.busy++
	c.fileBusy++
	return nil
}

func (op *FileOp) putVec() {
	if op.vec != nil {
		op.file.core.vecs.put(op.vec)
		op.vec = nil
	}
}

// complete takes the driver's answer.
func (op *FileOp) complete(c *Core, cp *uring.Completion) {
	f := op.file
	c.freeEntry(cp.User)
	f.busy--
	c.fileBusy--
	moved := 0
	if op.vec != nil {
		moved = op.vec.Size()
	}
	op.putVec()
	err := f.verdict(op, cp.Errno())
	if err == nil {
		err = op.moved(int(cp.Res), moved)
	}
	f.takeTurn()
	if err == nil && op.kind == uring.KindWrite && op.shares() {
		f.commit.add(op)
	} else {
		op.end(err)
	}
	f.atRest()
	f.tellRoom()
}

// takeTurn goes on with waiting requests of this file; requests of files that wait for room
// of the core come first.
func (f *File) takeTurn() {
	c := f.core
	if len(c.fileLine) == 0 {
		f.pump()
		return
	}
	if f.line.first != nil && !f.lined {
		f.lined = true
		c.fileLine = append(c.fileLine, f)
	}
	c.serveFiles()
}

// verdict is the error of a request that the kernel has answered with errno.
func (f *File) verdict(op *FileOp, errno unix.Errno) error {
	switch {
	case errno == unix.ECANCELED && f.ended != nil:
		return fmt.Errorf("%s: %w", f.name, f.ended)
	case errno != 0:
		return fmt.Errorf("%s: %s %d bytes at %d: %w", f.name, kindName(op.kind), op.length, op.off, errno)
	case f.wrong != nil && op.shares():
		return f.wrong
	case f.ended != nil && op.shares():
		return fmt.Errorf("%s: %w: %w", f.name, ErrNotDurable, f.ended)
	}
	return nil
}

func kindName(k uring.Kind) string {
	switch k {
	case uring.KindRead:
		return "read"
	case uring.KindWrite:
		return "write"
	}
	return "reserve"
}

// moved takes the result of a transfer of size bytes.
func (op *FileOp) moved(n, size int) error {
	st := &op.file.core.stats.Files
	switch op.kind {
	case uring.KindRead:
		op.N = op.arrived(n)
		st.Reads++
		st.BytesRead += uint64(op.N)
		if int64(op.N) < op.length {
			return io.EOF
		}
	case uring.KindWrite:
		op.N = n
		st.Writes++
		st.BytesWritten += uint64(n)
		if n != size {
			return fmt.Errorf("%s: write %d bytes at %d: %d were written: %w", op.file.name, op.length, op.off, n, io.ErrShortWrite)
		}
	}
	return nil
}

// endLater is end for a request that ends outside completions.
func (op *FileOp) endLater(err error) {
	op.Err = err
	op.file.core.fileDone.push(op)
}

// finishFiles calls Done of requests that ended outside completions. Requests that end so
// during these calls come in the next turn: a request may be refused, and made again, without
// end.
func (c *Core) finishFiles() {
	done := c.fileDone
	c.fileDone = opLine{}
	for op := done.pop(); op != nil; op = done.pop() {
		f := op.file
		op.end(op.Err)
		f.tellRoom()
	}
}

// end ends the request, and calls its Done.
func (op *FileOp) end(err error) {
	f, c := op.file, op.file.core
	op.Err, op.begun = err, false
	op.pieces, op.one[0] = nil, nil
	if err != nil && err != io.EOF {
		c.stats.Files.Errors++
	}
	f.ops--
	c.stats.Files.Ops--
	if op.charged > 0 { // it has not begun
		c.reads.giveBack(op.whose, op.charged)
		op.charged = 0
	}
	own := op.own
	if op.Keeps != nil {
		op.Keeps.Release()
		op.Keeps = nil
	}
	c.turnOf.ending = true
	op.Done(c, op)
	c.turnOf.ending = false
	if own != nil && op.own == own && !op.begun { // nobody has taken it
		op.own, op.Data = nil, nil
		c.pool.put(own)
	}
}

// failLine fails the requests that wait for their turn.
func (f *File) failLine(err error) {
	for f.line.first != nil {
		f.takeFirst().endLater(fmt.Errorf("%s: %w", f.name, err))
	}
	for i := len(f.core.reads.waiting) - 1; i >= 0; i-- {
		f.core.reads.waiting[i].drop(func(op *FileOp) bool { return op.file == f }, err)
	}
}

// serveFiles goes on with files that wait for room of the core.
func (c *Core) serveFiles() {
	for len(c.fileLine) > 0 && c.fileBusy < c.cfg.FileOps {
		f := c.fileLine[0]
		n := copy(c.fileLine, c.fileLine[1:])
		c.fileLine[n] = nil
		c.fileLine, f.lined = c.fileLine[:n], false
		f.pump()
	}
}

// abandonFiles ends the requests of a core whose driver is closed. kept says that the
// kernel still uses memory of them.
func (c *Core) abandonFiles(kept bool) {
	err := ErrStopped
	if kept {
		err = fmt.Errorf("%w: %w", ErrStopped, unix.EBUSY)
	}
	for i := range c.entries {
		op, ok := c.entries[i].of.(*FileOp)
		if !ok {
			continue
		}
		c.entries[i].of = nil
		if kept { // memory of the kernel is never used again
			op.vec, op.own = nil, nil
		}
		op.putVec()
		op.endLater(fmt.Errorf("%s: %w", op.file.name, err))
	}
	for i := range c.entries {
		if f, ok := c.entries[i].of.(*File); ok {
			f.commit.failBatch(fmt.Errorf("%s: %w: %w", f.name, ErrNotDurable, err))
		}
	}
	for c.fileDone.first != nil {
		c.finishFiles()
	}
}

// errAlign is wrapped by the error of a request on a file with direct I/O whose offset,
// length or memory is not aligned. The error names which.
var errAlign = errors.New("loop: misaligned for direct I/O")

// aligned returns an error that names the misaligned part of a transfer.
func (f *File) aligned(pieces [][]byte, off, n int64) error {
	grain := int64(f.align.Offset)
	wrong := func(what string, value int64) error {
		return fmt.Errorf("%s: %w: %s %d is no multiple of %d bytes", f.name, errAlign, what, value, grain)
	}
	switch {
	case grain == 0:
		return nil
	case off%grain != 0:
		return wrong("offset", off)
	case n%grain != 0:
		return wrong("length", n)
	}
	for _, p := range pieces {
		if int64(len(p))%grain != 0 {
			return wrong("length", int64(len(p)))
		}
		if !uring.Aligned(p, f.align.Memory) {
			return fmt.Errorf("%s: %w: the memory must begin at a multiple of %d bytes", f.name, errAlign, f.align.Memory)
		}
	}
	return nil
}

// choose says which memory the kernel moves: that of the request, or a buffer of the core
// that the caller gets (ReadBuffer). The buffer is taken when the request begins (place).
func (f *File) choose(op *FileOp) error {
	op.lends = op.pieces == nil && op.kind == uring.KindRead
	if !op.lends {
		return f.aligned(op.pieces, op.off, op.length)
	}
	op.skip = int(op.off % max(1, int64(f.align.Offset)))
	return nil
}

// place takes the buffer of a ReadBuffer.
func (op *FileOp) place() error {
	if !op.lends {
		return nil
	}
	c := op.file.core
	b, err := c.pool.get(max(pageSize, op.file.room(op)))
	if err != nil {
		return err
	}
	b.account, b.charged = op.whose, op.charged
	op.own, op.charged = b, 0
	return nil
}

// room is the number of bytes that the kernel moves for op through a buffer: whole blocks.
func (f *File) room(op *FileOp) int {
	grain := max(1, f.align.Offset)
	return (op.skip + int(op.length) + grain - 1) / grain * grain
}

// fill puts the memory into the request's list.
func (op *FileOp) fill() {
	if op.own != nil {
		op.vec.Append(op.own.b[:op.file.room(op)])
		return
	}
	for _, p := range op.pieces {
		op.vec.Append(p)
	}
}

// arrived is the number of bytes, of n that were read, that belong to the request.
func (op *FileOp) arrived(n int) int {
	n = int(min(int64(max(0, n-op.skip)), op.length))
	if op.own != nil {
		op.Data = op.own.b[op.skip : op.skip+n]
	}
	return n
}
