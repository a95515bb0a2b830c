package uring

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Driver is one I/O engine: a ring, or the epoll reactor behind the same
// calls. Every method but Wake is for the OS thread that opened it.
//
// Requests are made by the methods that return an Op. Each Op ends with
// exactly one final Completion (one without More), also after Cancel and after
// Close of its socket; a multishot Op yields any number of completions with
// More before that one. Memory named by a request belongs to the kernel from
// the call until that final completion.
//
// The user word of a request comes back unchanged in its completions. A
// completion that arrives late, for an Op whose slot has since been reused, is
// recognised by the slot's generation and never delivered.
type Driver interface {
	// Info describes the open engine, and the features that were found by trying them.
	Info() Info

	// Listen opens, binds and listens. The socket is non-blocking and
	// close-on-exec.
	Listen(addr netip.AddrPort, opt ListenOptions) (Socket, error)

	// Adopt takes over a connected or listening non-blocking descriptor, for
	// example the Res of an accept completion, and registers it with the ring
	// where it keeps a table of files. Close of the Socket closes it.
	Adopt(fd int) (Socket, error)

	// Connect opens a TCP socket, binds it to local if that is valid (a zero
	// port lets the kernel choose), and connects it. Res of the completion is 0
	// or a negative errno; the socket is the caller's in both cases.
	Connect(local, to netip.AddrPort, opt SocketOptions, user uint64) (Socket, Op, error)

	// Arm begins a multishot operation on s, by its kind:
	//
	//	KindAccept   Each completion carries a new descriptor in Res (non-blocking, close-on-exec) that the receiver
	//	             must Adopt or close.
	//	KindReady    An edge-triggered watch for readability: a completion says that bytes (or the end of the stream)
	//	             arrived since the last one. Res is the poll mask. The receiver reads until Recv comes back short.
	//	KindReceive  A receive into the driver's own buffers. Data of each completion has the received bytes; give it
	//	             back with Release. Res 0 is the end of the stream. It fails with errors.ErrUnsupported unless
	//	             Info().Receive. A final completion with -ENOBUFS means that the buffers ran out: release some,
	//	             then arm again; nothing is lost.
	Arm(k Kind, s Socket, user uint64) (Op, error)

	// Release returns the buffer slice of one completion of KindReceive.
	Release(b Buffer)

	// Recv reads at once, without the ring and without blocking, into p and then q. It
	// returns the bytes read and 0, or an errno (EAGAIN: nothing there). 0 bytes and no
	// errno is the end of the stream.
	Recv(s Socket, p, q []byte) (int, unix.Errno)

	// Send queues all of v for transmission. At most one Send per socket may be
	// in flight. If done, everything is in the socket's buffer already and no
	// completion follows. Otherwise one
	// completion follows, with Res the number of bytes sent (all of them) or
	// a negative errno. v and the memory that it points to must stay
	// untouched until then.
	//
	// With SendQuiet the completion of a success may be delayed until
	// something else ends the next Wait: use it only where nothing waits for it.
	Send(s Socket, v *Vec, user uint64, flags SendFlags) (done bool, op Op, err error)

	// Cancel asks for an early end of op. Its final completion still follows,
	// with -ECANCELED or with the result that came first. An op that has ended is
	// ignored.
	Cancel(op Op)

	// EndWriting ends our direction of s, behind all sends that have ended: the peer reads the
	// end of the stream there. A send in flight, or a later one, fails; what the peer sends is
	// received as before.
	EndWriting(s Socket)

	// Close cancels everything in flight on s and closes it. Final
	// completions of its operations still follow.
	Close(s Socket)

	// Reset is Close with a TCP reset: the peer reads ECONNRESET in place of the end of the
	// stream, and bytes that it has not got are lost.
	Reset(s Socket)

	// Detach lets go of s without closing it and returns its descriptor, which
	// is the caller's from then on: to be given to another driver (Adopt), or
	// closed. Whatever has arrived stays in it. Nothing may be in flight on s,
	// else it fails with EBUSY.
	Detach(s Socket) (fd int, err error)

	// LocalAddr and PeerAddr ask the kernel; invalid if it does not know.
	LocalAddr(s Socket) netip.AddrPort
	PeerAddr(s Socket) netip.AddrPort

	// Acknowledged asks the kernel for the number of bytes sent on s that the peer's kernel
	// has; 0 if it does not know. It may be one too many, for the byte that opens a connection.
	Acknowledged(s Socket) uint64

	// Wait submits the queued requests and returns completions: with timeout 0 at
	// once, else after a completion, a Wake or the timeout; a negative timeout never
	// ends. The slice is valid until the next Wait. An error is final: the driver
	// can only be closed.
	Wait(timeout time.Duration) ([]Completion, error)

	// Wake makes the current or the next Wait return. Any goroutine may call
	// it, also during and after CloseDriver.
	Wake()

	// Stats counts since the driver was opened.
	Stats() Stats

	FileDriver

	// CloseDriver cancels everything, waits until the kernel uses no memory
	// any more, and frees it. Sockets and files that were not closed are closed.
	CloseDriver() error
}

// Op names one operation in flight: slot and generation. The zero Op is none.
type Op uint64

// Socket is a descriptor owned by a driver, with its place in the ring's file
// table if it has one. The zero Socket is invalid: it is never handed out.
type Socket struct {
	fd    int32 // descriptor + 1, so that the zero value is invalid
	fixed int32 // index in the ring's file table + 1, 0 for none
}

// MakeSocket builds the Socket of descriptor fd with no place in a file table. It is for
// implementations of Driver outside this package, for example a simulated network.
func MakeSocket(fd int) Socket { return Socket{fd: int32(fd) + 1} }

// FD is the descriptor, or -1 for the zero Socket.
func (s Socket) FD() int { return int(s.fd) - 1 }

// Valid says whether s was handed out by a driver.
func (s Socket) Valid() bool { return s.fd != 0 }

// Kind says which request a completion answers.
type Kind uint8

// The kinds of completions, one per request.
const (
	KindNone Kind = iota
	KindAccept
	KindConnect
	KindReady
	KindReceive
	KindSend
	KindRead
	KindWrite
	KindSync
	KindAllocate
)

// Flags of a Completion.
type Flags uint8

const (
	// More: the multishot operation stays armed.
	More Flags = 1 << iota
	// Copied: a zero-copy send was copied by the kernel after all (loopback,
	// or a device without scatter/gather).
	Copied
)

// Completion is one answer of the driver.
type Completion struct {
	User  uint64 // as given with the request
	Op    Op     // the operation that it belongs to
	Data  []byte // KindReceive: the bytes, until Release(Buf)
	Res   int32  // result, or a negative errno
	Buf   Buffer // KindReceive: for Release
	Kind  Kind
	Flags Flags
}

// Errno is the error of a failed completion, 0 for a success.
func (c *Completion) Errno() unix.Errno { return unix.Errno(-min(c.Res, 0)) }

// Buffer names a slice of a driver's receive buffers. The zero Buffer is none.
type Buffer uint32

// SendFlags modify Send.
type SendFlags uint8

const (
	// SendQuiet: nobody waits for the completion of a success.
	SendQuiet SendFlags = 1 << iota
	// SendZeroCopy: let the device read the memory of v itself, where the
	// kernel can. The completion then comes only when the memory is free.
	SendZeroCopy
)

// SocketOptions are set on a TCP socket before it connects or listens.
// The zero value keeps the kernel's defaults. Nagle's algorithm is off (TCP_NODELAY).
type SocketOptions struct {
	SendBuffer    int // SO_SNDBUF in bytes, 0: kernel default
	ReceiveBuffer int // SO_RCVBUF in bytes, 0: kernel default
}

// ListenOptions are set on a listener.
type ListenOptions struct {
	SocketOptions
	ReusePort bool // join the SO_REUSEPORT group of the address
	Exclusive bool // begin a new group: fails with EADDRINUSE if anybody listens on the address
}

// Stats are counters of one driver since it was opened. Syscalls counts every
// system call that the driver made, the enters among them.
type Stats struct {
	Syscalls    uint64 `json:"syscalls"`
	Enters      uint64 `json:"enters"`      // io_uring_enter or epoll_wait
	Sleeps      uint64 `json:"sleeps"`      // of these, those allowed to block
	Submitted   uint64 `json:"submitted"`   // requests given to the kernel
	Registered  uint64 `json:"registered"`  // requests on files that used registered memory
	Completions uint64 `json:"completions"` // completions delivered
	Stale       uint64 `json:"stale"`       // late completions dropped by generation
	Overflows   uint64 `json:"overflows"`   // times the completion queue overflowed
	NoBuffers   uint64 `json:"no_buffers"`  // multishot receives ended by ENOBUFS
	SQFull      uint64 `json:"sq_full"`     // times the submission queue was full
	Wakes       uint64 `json:"wakes"`       // wake-ups seen
	InFlight    uint64 `json:"in_flight"`   // operations in flight now
}
