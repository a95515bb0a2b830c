package uring

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// engine is the part that both engines share: the open descriptors, the operations on them, and
// the calls that need no queue. Owner: the driver.
type engine struct {
	name  string // in errors
	rest  engineRest
	ops   opTable
	socks []Socket     // by descriptor: the open sockets and files
	shut  map[int]bool // files that close when their last operation has ended
	wake  waker
	info  Info
	stats Stats
	err   error // final error
	state driverState
}

type driverState uint8

const (
	stateOpen driverState = iota
	stateClosing
	stateClosed
)

// engineRest is the part of an engine that the other does in another way.
type engineRest interface {
	Cancel(op Op)
	// beginFile begins a request on a file.
	beginFile(op Op, o *operation) error
	// finish ends op outside Wait: the next Wait delivers the completion.
	finish(op Op, res int32)
	// shed closes a descriptor that no request names any more.
	shed(s Socket)
}

var (
	errTooMany      = fmt.Errorf("too many operations in flight: %w", unix.ENOMEM)
	errNoReceive    = fmt.Errorf("receive into the driver's buffers: %w", errors.ErrUnsupported)
	errNoRegistered = fmt.Errorf("register memory: %w", errors.ErrUnsupported)
)

// Info implements Driver.
func (e *engine) Info() Info { return e.info }
func (e *engine) Wake()      { e.wake.wake() }

func (e *engine) isOpen(s Socket) bool {
	fd := s.FD()
	return s.Valid() && fd < len(e.socks) && e.socks[fd] == s
}

// usable says why no operation on s can start.
func (e *engine) usable(s Socket) error {
	switch {
	case e.state != stateOpen:
		return fmt.Errorf("%s: %w", e.name, net.ErrClosed)
	case e.err != nil:
		return e.err
	case !e.isOpen(s):
		return fmt.Errorf("%s: descriptor %d is not open: %w", e.name, s.FD(), unix.EBADF)
	}
	return nil
}

// adoptable says why the driver cannot take over a descriptor.
func (e *engine) adoptable(fd int) error {
	switch {
	case e.state != stateOpen:
		return fmt.Errorf("%s: adopt: %w", e.name, net.ErrClosed)
	case fd < 0 || fd >= math.MaxInt32:
		return fmt.Errorf("%s: adopt descriptor %d: %w", e.name, fd, unix.EBADF)
	case fd < len(e.socks) && e.socks[fd].Valid():
		return fmt.Errorf("%s: adopt descriptor %d: %w", e.name, fd, unix.EEXIST)
	}
	return nil
}

// track notes that s is open.
func (e *engine) track(s Socket) {
	for s.FD() >= len(e.socks) {
		e.socks = append(e.socks, Socket{})
	}
	e.socks[s.FD()] = s
}

// detachable says why a socket cannot leave.
func (e *engine) detachable(s Socket) error {
	switch {
	case !e.isOpen(s):
		return fmt.Errorf("%s: detach: descriptor %d is not open: %w", e.name, s.FD(), unix.EBADF)
	case e.ops.first(s.FD()) != 0:
		return fmt.Errorf("%s: detach descriptor %d: %w", e.name, s.FD(), unix.EBUSY)
	}
	return nil
}

// listen opens the descriptor of a listener.
func (e *engine) listen(addr netip.AddrPort, opt ListenOptions) (int, error) {
	if e.state != stateOpen {
		return -1, fmt.Errorf("%s: listen: %w", e.name, net.ErrClosed)
	}
	fd, err := listenTCP(addr, opt)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", e.name, err)
	}
	e.stats.Syscalls += socketCalls(opt.SocketOptions) + 3 // SO_REUSEADDR, bind, listen
	if opt.ReusePort || opt.Exclusive {
		e.stats.Syscalls++
	}
	return fd, nil
}

// dial opens and binds a socket, and returns the kernel's form of the address to connect to.
func (e *engine) dial(local, to netip.AddrPort, opt SocketOptions) (fd int, sa [sockaddrSize]byte, size int, err error) {
	if e.state != stateOpen {
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

// socketCalls is the number of system calls that openTCP makes.
func socketCalls(opt SocketOptions) uint64 {
	n := uint64(2) // the first option is always set
	for _, set := range [...]bool{opt.SendBuffer > 0, opt.ReceiveBuffer > 0} {
		if set {
			n++
		}
	}
	return n
}

// LocalAddr implements Driver.
func (e *engine) LocalAddr(s Socket) netip.AddrPort { return e.address(s, LocalAddr) }
func (e *engine) PeerAddr(s Socket) netip.AddrPort  { return e.address(s, peerAddr) }

func (e *engine) address(s Socket, ask func(int) netip.AddrPort) netip.AddrPort {
	if !e.isOpen(s) {
		return netip.AddrPort{}
	}
	e.stats.Syscalls++
	return ask(s.FD())
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
	if r.Kind.tooLong(r.Vec) {
		return 0, fmt.Errorf("%s: file %d: %w", e.name, f.FD(), errTooLong)
	}
	op, ok := e.ops.add(r.Kind, f.sock, r.User, r.Vec)
	if !ok {
		return 0, errTooMany
	}
	o := e.ops.get(op)
	o.file = fileRequest{off: r.Off, length: r.Length, grain: int32(f.align.Offset)}
	if r.Durable {
		o.file.flags = unix.RWF_DSYNC
	}
	if r.Kind.transfers() && r.Vec.Size() == 0 {
		e.rest.finish(op, 0)
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
	if e.state == stateOpen && e.isOpen(f.sock) && !e.shut[f.FD()] {
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
		e.rest.shed(s)
	}
}
