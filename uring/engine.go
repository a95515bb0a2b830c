package uring

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// engine is the part that both engines share: the open descriptors, the operations on them and
// their completions, the course of a Wait and of the end. Owner: the driver.
type engine struct {
	name  string // in errors
	rest  engineRest
	ops   opTable
	socks []Socket     // by descriptor: the open sockets and files
	shut  map[int]bool // files that close when their last operation has ended
	wake  waker
	woken bool         // since Wait began
	out   []Completion // of the last Wait, or of the present one
	early []Completion // collected between two Waits
	info  Info
	stats Stats
	err   error // final error
	// closed: nothing new begins, CloseDriver has only to wait, or has ended.
	closed bool
}

// engineRest is the part of an engine that the other does in another way.
type engineRest interface {
	Cancel(op Op)
	// beginFile begins a request on a file.
	beginFile(op Op, o *operation) error
	// admit makes a descriptor known to the kernel's side of the engine.
	admit(fd int, as use) (Socket, error)
	// leave undoes admit. closes says that the descriptor is closed next.
	leave(s Socket, closes bool) unix.Errno
	// flush has the kernel take the requests that were made before.
	flush()
	// turn is one system call that waits for timeout at most (negative: for ever), and what
	// came of it, in out and woken. It says whether the timeout passed. Its failure is err.
	turn(timeout time.Duration) (expired bool)
	// stop ends the engine's own requests, before the sockets are closed.
	stop()
	// idle says that none of these is in flight.
	idle() bool
	// release frees everything, but for memory that operations in flight may use (kept).
	release(kept bool) error
}

// use is the use of a descriptor.
type use uint8

const (
	asSocket     use = iota // also a listener that was adopted
	asListener              // of the engine's own
	asFile                  // through the page cache
	asDirectFile            // with direct I/O
)

var (
	errTooMany      = fmt.Errorf("too many operations in flight: %w", unix.ENOMEM)
	errNoReceive    = fmt.Errorf("receive into the driver's buffers: %w", errors.ErrUnsupported)
	errNoRegistered = fmt.Errorf("register memory: %w", errors.ErrUnsupported)
)

// Info implements Driver.
func (e *engine) Info() Info { return e.info }
func (e *engine) Wake()      { e.wake.wake() }

// Stats implements Driver. An operation is in flight until its final completion is delivered.
func (e *engine) Stats() Stats {
	s := e.stats
	s.Syscalls += e.wake.writes.Load()
	s.InFlight = uint64(e.ops.inFlight)
	for i := range e.early {
		if e.early[i].Flags&More == 0 {
			s.InFlight++
		}
	}
	return s
}

// Wait implements Driver. It goes on after a turn of which nothing came.
func (e *engine) Wait(timeout time.Duration) ([]Completion, error) {
	if e.closed {
		return nil, fmt.Errorf("%s: wait: %w", e.name, net.ErrClosed)
	}
	e.out, e.early = e.early, e.out[:0]
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	for left := timeout; ; {
		if len(e.out) > 0 || e.woken || e.err != nil {
			left = 0 // it came before
		}
		expired := e.rest.turn(left)
		if len(e.out) > 0 || e.woken || expired || e.err != nil || timeout == 0 {
			break
		}
		if left = timeout; timeout > 0 {
			if left = time.Until(deadline); left <= 0 {
				break
			}
		}
	}
	e.woken = false
	e.stats.Completions += uint64(len(e.out))
	if len(e.out) == 0 && e.err != nil {
		return nil, e.err
	}
	return e.out, nil
}

// complete delivers the final completion of op.
func (e *engine) complete(to *[]Completion, op Op, o *operation, res int32) {
	var flags Flags
	if o.bits&opCopied != 0 {
		flags = Copied
	}
	if o.vec != nil {
		o.vec.rewind()
	}
	*to = append(*to, Completion{User: o.user, Op: op, Res: res, Kind: o.kind, Flags: flags})
	sock := o.sock
	e.ops.end(op)
	if len(e.shut) > 0 {
		e.fileEnded(sock)
	}
}

// finish ends op, if it has not ended, outside Wait: the next Wait delivers the completion.
func (e *engine) finish(op Op, res int32) {
	if o := e.ops.get(op); o != nil {
		e.complete(&e.early, op, o, res)
	}
}

// closeStep and closeTime bound the time for which CloseDriver waits for the kernel. The
// kernel cancels some requests at once; the others wait for the network or a device.
const (
	closeStep = 100 * time.Millisecond
	closeTime = 10 * time.Second
)

// abandoned are the engines whose operations the kernel did not end. Nobody else refers to them for as long as the process
// runs, and without that the collector would free Go memory of their lists, into which the kernel may write.
var abandoned sync.Map

// CloseDriver implements Driver.
func (e *engine) CloseDriver() error {
	if e.closed {
		return nil
	}
	e.rest.stop()
	for op, i := e.ops.live(0); op != 0; op, i = e.ops.live(i) {
		e.rest.Cancel(op)
	}
	e.rest.flush()
	for fd, s := range e.socks {
		switch o := e.ops.get(e.ops.first(fd)); {
		case !s.Valid():
		case o != nil && o.kind.isFile():
			e.closeFile(s)
		default:
			e.Close(s)
		}
	}
	e.closed = true
	kept := !e.drain()
	e.wake.close()
	err := e.rest.release(kept)
	if kept {
		abandoned.Store(e, nil)
		return errors.Join(err, fmt.Errorf("close %s: the kernel still holds %d operations; their memory is not freed: %w",
			e.name, e.ops.inFlight, unix.EBUSY))
	}
	return err
}

// drain waits until no operation is in flight. It returns false if some stay.
func (e *engine) drain() bool {
	e.out = e.out[:0] // their receiver has them
	for end := time.Now().Add(closeTime); ; {
		for _, list := range [...][]Completion{e.out, e.early} {
			for i := range list { // connections that were not delivered
				if c := &list[i]; c.Kind == KindAccept && c.Res >= 0 {
					e.closeFD(int(c.Res))
				}
			}
		}
		e.out, e.early = e.out[:0], e.early[:0]
		if e.ops.inFlight == 0 && e.rest.idle() {
			return true
		}
		if e.err != nil || time.Now().After(end) {
			return false
		}
		e.rest.turn(closeStep)
	}
}

func (e *engine) isOpen(s Socket) bool {
	fd := s.FD()
	return s.Valid() && fd < len(e.socks) && e.socks[fd] == s
}

// usable says why no operation on s can start.
func (e *engine) usable(s Socket) error {
	switch {
	case e.closed:
		return fmt.Errorf("%s: %w", e.name, net.ErrClosed)
	case e.err != nil:
		return e.err
	case !e.isOpen(s):
		return fmt.Errorf("%s: descriptor %d is not open: %w", e.name, s.FD(), unix.EBADF)
	}
	return nil
}

// adopt takes over a descriptor.
func (e *engine) adopt(fd int, as use) (s Socket, err error) {
	switch {
	case e.closed:
		err = net.ErrClosed
	case fd < 0 || fd >= math.MaxInt32:
		err = unix.EBADF
	case fd < len(e.socks) && e.socks[fd].Valid():
		err = unix.EEXIST
	default:
		s, err = e.rest.admit(fd, as)
	}
	if err != nil {
		return Socket{}, fmt.Errorf("%s: adopt descriptor %d: %w", e.name, fd, err)
	}
	for fd >= len(e.socks) {
		e.socks = append(e.socks, Socket{})
	}
	e.socks[fd] = s
	return s, nil
}

// own is adopt for a descriptor that only the driver has.
func (e *engine) own(fd int, as use) (Socket, error) {
	s, err := e.adopt(fd, as)
	if err != nil {
		e.closeFD(fd)
	}
	return s, err
}

// Adopt implements Driver.
func (e *engine) Adopt(fd int) (Socket, error) { return e.adopt(fd, asSocket) }

// AdoptFile implements FileDriver.
func (e *engine) AdoptFile(fd int) (File, error) {
	a, err := alignmentOf(fd)
	if err != nil {
		return File{}, fmt.Errorf("%s: adopt file %d: %w", e.name, fd, err)
	}
	as := asFile
	if a.Direct() {
		as = asDirectFile
	}
	s, err := e.adopt(fd, as)
	return File{sock: s, align: a}, err
}

// Detach implements Driver.
func (e *engine) Detach(s Socket) (int, error) {
	errno := unix.Errno(0)
	switch {
	case !e.isOpen(s):
		errno = unix.EBADF
	case e.ops.first(s.FD()) != 0:
		errno = unix.EBUSY
	default:
		errno = e.rest.leave(s, false)
	}
	if errno != 0 {
		return -1, fmt.Errorf("%s: detach descriptor %d: %w", e.name, s.FD(), errno)
	}
	e.socks[s.FD()] = Socket{}
	return s.FD(), nil
}

// EndWriting implements Driver. Requests made before go first.
func (e *engine) EndWriting(s Socket) {
	if e.isOpen(s) {
		e.rest.flush()
		e.stats.Syscalls++
		_ = unix.Shutdown(s.FD(), unix.SHUT_WR) // ENOTCONN: ended already
	}
}

// Close implements Driver. Requests name the file by number: the kernel takes them before the
// number is free for another file.
func (e *engine) Close(s Socket) {
	if e.isOpen(s) {
		e.cancelOn(s.FD())
		e.rest.flush()
		e.shed(s)
	}
}

// Reset implements Driver.
func (e *engine) Reset(s Socket) {
	e.resetOnClose(s)
	e.Close(s)
}

// resetOnClose has the close of a socket be a reset.
func (e *engine) resetOnClose(s Socket) {
	if e.isOpen(s) {
		e.stats.Syscalls++
		_ = unix.SetsockoptLinger(s.FD(), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // else it is in order
	}
}

// shed closes a descriptor that no request names any more.
func (e *engine) shed(s Socket) {
	_ = e.rest.leave(s, true)
	e.socks[s.FD()] = Socket{}
	e.closeFD(s.FD())
}

func (e *engine) closeFD(fd int) {
	e.stats.Syscalls++
	_ = unix.Close(fd)
}

// Listen implements Driver.
func (e *engine) Listen(addr netip.AddrPort, opt ListenOptions) (Socket, error) {
	if e.closed {
		return Socket{}, fmt.Errorf("%s: listen: %w", e.name, net.ErrClosed)
	}
	fd, err := listenTCP(addr, opt)
	if err != nil {
		return Socket{}, fmt.Errorf("%s: %w", e.name, err)
	}
	e.stats.Syscalls += socketCalls(opt.SocketOptions) + 3 // SO_REUSEADDR, bind, listen
	if opt.ReusePort || opt.Exclusive {
		e.stats.Syscalls++
	}
	return e.own(fd, asListener)
}

// start takes a slot for an operation on s.
func (e *engine) start(kind Kind, s Socket, user uint64, v *Vec) (Op, error) {
	if kind == KindReceive && !e.info.Receive {
		return 0, errNoReceive
	}
	if err := e.usable(s); err != nil {
		return 0, err
	}
	op, ok := e.ops.add(kind, s, user, v)
	if !ok {
		return 0, errTooMany
	}
	return op, nil
}

// sendable says why v cannot be sent at once on s.
func (e *engine) sendable(s Socket, v *Vec) error {
	if err := e.usable(s); err != nil {
		return err
	}
	if v.Size() > math.MaxInt32 {
		return fmt.Errorf("%s: send %d bytes at once: %w", e.name, v.Size(), unix.EMSGSIZE)
	}
	return nil
}

// dial opens and binds a socket, and returns the kernel's form of the address to connect to.
func (e *engine) dial(local, to netip.AddrPort, opt SocketOptions) (fd int, sa [sockaddrSize]byte, size int, err error) {
	if e.closed {
		return -1, sa, 0, fmt.Errorf("%s: connect: %w", e.name, net.ErrClosed)
	}
	if size, err = putSockaddr(&sa, to); err == nil {
		fd, err = dialTCP(local, to, opt)
	}
	if err != nil {
		return -1, sa, 0, fmt.Errorf("%s: connect to %v: %w", e.name, to, err)
	}
	e.stats.Syscalls += socketCalls(opt)
	if local.IsValid() {
		e.stats.Syscalls += 2 // an option, and bind
	}
	return fd, sa, size, nil
}

// socketCalls is the number of system calls that openTCP makes, of which two are always made.
func socketCalls(opt SocketOptions) uint64 {
	return uint64(2 + min(max(opt.SendBuffer, 0), 1) + min(max(opt.ReceiveBuffer, 0), 1))
}

// LocalAddr implements Driver.
func (e *engine) LocalAddr(s Socket) netip.AddrPort { return e.address(s, unix.SYS_GETSOCKNAME) }
func (e *engine) PeerAddr(s Socket) netip.AddrPort  { return e.address(s, unix.SYS_GETPEERNAME) }

func (e *engine) address(s Socket, call uintptr) netip.AddrPort {
	if !e.isOpen(s) {
		return netip.AddrPort{}
	}
	e.stats.Syscalls++
	return nameOf(call, s.FD())
}

// Acknowledged implements Driver.
func (e *engine) Acknowledged(s Socket) uint64 {
	if !e.isOpen(s) {
		return 0
	}
	e.stats.Syscalls++
	return acknowledged(s.FD())
}

// Recv implements Driver. A read into one place costs less than one into a list.
func (e *engine) Recv(s Socket, p, q []byte) (int, unix.Errno) {
	if !e.isOpen(s) {
		return 0, unix.EBADF
	}
	e.stats.Syscalls++
	switch {
	case len(q) == 0:
		return recvNow(s.FD(), p)
	case len(p) == 0:
		return recvNow(s.FD(), q)
	}
	return recvvNow(s.FD(), p, q)
}

// cancelOn cancels the operations on a descriptor.
func (e *engine) cancelOn(fd int) {
	for op := e.ops.first(fd); op != 0; {
		next := e.ops.after(op)
		e.rest.Cancel(op)
		op = next
	}
}

// AskFile implements FileDriver. It takes a slot for the request, and begins with it.
func (e *engine) AskFile(f File, r FileRequest) (Op, error) {
	if err := e.usable(f.sock); err != nil {
		return 0, err
	}
	if len(e.shut) > 0 && e.shut[f.FD()] {
		return 0, fmt.Errorf("%s: file %d is being closed: %w", e.name, f.FD(), unix.EBADF)
	}
	if !r.Kind.isFile() {
		return 0, fmt.Errorf("%s: file %d: a request of kind %d: %w", e.name, f.FD(), r.Kind, unix.EINVAL)
	}
	if r.Kind.transfers() && r.Vec.Size() > math.MaxInt32 {
		return 0, fmt.Errorf("%s: file %d: %w", e.name, f.FD(), errTooLong)
	}
	op, ok := e.ops.add(r.Kind, f.sock, r.User, r.Vec)
	if !ok {
		return 0, errTooMany
	}
	o := e.ops.get(op)
	o.file = fileRequest{off: r.Off, length: r.Length, grain: int32(f.align.Offset)}
	switch {
	case r.Kind == KindSync:
		o.file.off, o.file.length = 0, 0 // of all writes, wherever they are
	case r.Kind == KindWrite && r.Durable:
		o.file.flags = unix.RWF_DSYNC
	}
	switch {
	case !r.Kind.transfers():
	case r.Vec.Size() == 0:
		e.finish(op, 0)
		return op, nil
	case r.Off < 0: // -1 would be the position of the descriptor
		e.finish(op, -int32(unix.EINVAL))
		return op, nil
	}
	if err := e.rest.beginFile(op, o); err != nil {
		e.ops.end(op)
		return 0, err
	}
	return op, nil
}

// CloseFile implements FileDriver. The kernel, or a thread, looks at the number of a file when it
// begins with a request, which may be late: the number stays taken as long.
func (e *engine) CloseFile(f File) {
	if !e.closed && e.isOpen(f.sock) && !e.shut[f.FD()] {
		e.closeFile(f.sock)
	}
}

// closeFile cancels all operations on a file, and has it closed after the last one.
func (e *engine) closeFile(s Socket) {
	if e.shut == nil {
		e.shut = map[int]bool{}
	}
	e.shut[s.FD()] = true
	e.cancelOn(s.FD())
	e.fileEnded(s)
}

// fileEnded closes a file that waited for its last operation.
func (e *engine) fileEnded(s Socket) {
	if fd := s.FD(); e.shut[fd] && e.ops.first(fd) == 0 {
		delete(e.shut, fd)
		e.shed(s)
	}
}
