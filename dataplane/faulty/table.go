package faulty

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Request is a call of a core to its driver, or the answer to the call.
type Request string

// The requests by the methods of uring.Driver, those of Arm by their kinds. Those with End
// are the answers: a completion, where the request itself was taken.
const (
	Open       Request = "open" // uring.Open
	Listen     Request = "listen"
	Adopt      Request = "adopt"
	Detach     Request = "detach"
	Accept     Request = "accept"
	AcceptEnd  Request = "accept-end"
	Connect    Request = "connect"
	ConnectEnd Request = "connect-end"
	Ready      Request = "ready"
	ReadyEnd   Request = "ready-end"
	Receive    Request = "receive"
	ReceiveEnd Request = "receive-end"
	Read       Request = "read" // Recv
	Send       Request = "send"
	SendEnd    Request = "send-end"
	Map        Request = "map" // uring.Map, which is none of a driver
	Wait       Request = "wait"
	Close      Request = "close" // CloseDriver
)

// Form is how a request fails, if not just by its errno.
type Form uint8

// The forms.
const (
	Fails Form = iota // with the errno, and nothing was done
	Part              // SendEnd: with the errno, when half of it was sent
	Whole             // SendEnd: with the errno, when all of it was sent
	Short             // SendEnd: half of it was sent, and that is the result
	Early             // a multishot request ends without an error
	Empty             // ReadyEnd: there is nothing to be read
	Late              // the answer and those behind it come some turns later
)

var formNames = [...]string{"", "part ", "whole ", "short", "early", "empty", "late"}

// Fault is one way in which a request can fail. The zero value is none.
type Fault struct {
	Errno unix.Errno
	Form  Form
}

func (f Fault) String() string {
	s := formNames[f.Form]
	if f.Errno != 0 {
		s += unix.ErrnoName(f.Errno)
	}
	return strings.TrimSpace(s)
}

// Outcome is the required outcome of a fault. With every fault nothing is lost on a
// lossless session, and the other connections go on.
type Outcome string

// The outcomes.
const (
	StartFails Outcome = "the start of a core fails, with the cause"
	BindFails  Outcome = "the bind fails, with the cause"
	DialFails  Outcome = "the attempt fails, and another one comes after a pause"
	Drops      Outcome = "the accepted connection is closed"
	Again      Outcome = "it is asked again at once, and no connection notices"
	Later      Outcome = "it is asked again after a pause, and the cause is logged once"
	Faults     Outcome = "the connection faults with the cause"
	CoreFails  Outcome = "the core fails: what it has goes to the others"
	Logged     Outcome = "the cause is logged, as nothing else can be done"
	Unnoticed  Outcome = "nobody notices"
)

// Cell is one line of the table.
type Cell struct {
	Request Request
	Fault   Fault
	Then    Outcome
}

func (c Cell) String() string { return fmt.Sprintf("%s/%v", c.Request, c.Fault) }

// row is a request with errors of one outcome.
type row struct {
	request Request
	then    Outcome
	errnos  []unix.Errno
	forms   []Form // besides: without an errno
}

// Lists of the manual pages, Linux, section 2 unless another one is named.
var (
	// io_uring_setup, io_uring_register, mmap, eventfd, epoll_create1, epoll_ctl; EACCES
	// and ENOSYS come from security modules and seccomp.
	openErrnos = []unix.Errno{unix.EACCES, unix.EAGAIN, unix.EBADF, unix.EBUSY, unix.EEXIST, unix.EFAULT, unix.EINVAL, unix.EMFILE,
		unix.ENFILE, unix.ENODEV, unix.ENOMEM, unix.ENOSPC, unix.ENOSYS, unix.ENXIO, unix.EOPNOTSUPP, unix.EPERM}
	// socket, setsockopt, bind, listen, epoll_ctl.
	listenErrnos = []unix.Errno{unix.EACCES, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EBADF, unix.EEXIST, unix.EFAULT,
		unix.EINVAL, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENODEV, unix.ENOMEM, unix.ENOPROTOOPT, unix.ENOSPC, unix.ENOTSOCK,
		unix.EOPNOTSUPP, unix.EPERM, unix.EPROTONOSUPPORT}
	// epoll_ctl with EPOLL_CTL_ADD; the ring's table of files (io_uring_register) is not essential.
	adoptErrnos = []unix.Errno{unix.EBADF, unix.EEXIST, unix.EINVAL, unix.ELOOP, unix.ENOMEM, unix.ENOSPC, unix.EPERM}
	// epoll_ctl with EPOLL_CTL_DEL; EBUSY is of the driver.
	detachErrnos = []unix.Errno{unix.EBADF, unix.EBUSY, unix.EINVAL, unix.ENOENT, unix.ENOMEM}
	// A request that does not get into the queue: io_uring_enter, and the table of requests.
	queueErrnos = []unix.Errno{unix.EBADF, unix.EBUSY, unix.ENOBUFS, unix.ENOMEM}
	// accept4, errors of the network that it passes on among them, and what it lists for
	// other kernels; ECANCELED is of io_uring.
	acceptErrnos = []unix.Errno{unix.EAGAIN, unix.EBADF, unix.EFAULT, unix.EINVAL, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM,
		unix.ENOTSOCK, unix.EOPNOTSUPP, unix.EPERM, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.ENONET, unix.EHOSTUNREACH,
		unix.ENETUNREACH, unix.ENOSR, unix.ESOCKTNOSUPPORT, unix.EPROTONOSUPPORT, unix.ETIMEDOUT}
	acceptAgainErrnos = []unix.Errno{unix.ECANCELED, unix.ECONNABORTED, unix.EINTR, unix.EPROTO}
	// socket, setsockopt, bind, epoll_ctl.
	dialErrnos = []unix.Errno{unix.EACCES, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EBADF, unix.EINVAL, unix.EMFILE,
		unix.ENFILE, unix.ENOBUFS, unix.ENODEV, unix.ENOMEM, unix.ENOSPC, unix.EPERM, unix.EPROTONOSUPPORT}
	// connect, ip(7), tcp(7); ECANCELED is of io_uring.
	connectErrnos = []unix.Errno{unix.EACCES, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EAGAIN, unix.EALREADY, unix.EBADF,
		unix.ECANCELED, unix.ECONNABORTED, unix.ECONNREFUSED, unix.ECONNRESET, unix.EFAULT, unix.EHOSTDOWN, unix.EHOSTUNREACH,
		unix.EINPROGRESS, unix.EINTR, unix.EINVAL, unix.EISCONN, unix.ENETDOWN, unix.ENETUNREACH, unix.ENOBUFS, unix.ENOMEM, unix.ENOTSOCK,
		unix.EPERM, unix.EPROTOTYPE, unix.ETIMEDOUT}
	// epoll_ctl with EPOLL_CTL_MOD, and queueErrnos.
	readyErrnos = []unix.Errno{unix.EBADF, unix.EBUSY, unix.EINVAL, unix.ENOBUFS, unix.ENOENT, unix.ENOMEM, unix.ENOSPC, unix.EPERM}
	// poll of io_uring.
	pollErrnos = []unix.Errno{unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOMEM, unix.EOPNOTSUPP}
	// recv, readv, ip(7), tcp(7).
	readErrnos = []unix.Errno{unix.EACCES, unix.EBADF, unix.ECONNABORTED, unix.ECONNREFUSED, unix.ECONNRESET, unix.EFAULT, unix.EHOSTDOWN,
		unix.EHOSTUNREACH, unix.EINVAL, unix.EIO, unix.ENETDOWN, unix.ENETUNREACH, unix.ENOMEM, unix.ENOTCONN, unix.ENOTSOCK,
		unix.EOPNOTSUPP, unix.EPERM, unix.EPIPE, unix.ETIMEDOUT}
	// sendmsg, ip(7), tcp(7); ECANCELED and EIO are of io_uring.
	sendErrnos = []unix.Errno{unix.EACCES, unix.EAGAIN, unix.EALREADY, unix.EBADF, unix.ECANCELED, unix.ECONNABORTED, unix.ECONNRESET,
		unix.EDESTADDRREQ, unix.EFAULT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.EINTR, unix.EINVAL, unix.EIO, unix.EISCONN, unix.EMSGSIZE,
		unix.ENETDOWN, unix.ENETUNREACH, unix.ENOBUFS, unix.ENOMEM, unix.ENOTCONN, unix.ENOTSOCK, unix.EOPNOTSUPP, unix.EPERM, unix.EPIPE,
		unix.ETIMEDOUT}
	// io_uring_enter and epoll_pwait, but for EAGAIN, EBUSY, EINTR and ETIME, with which
	// the driver deals itself. EBADR: the completion queue overflowed, and there was no
	// memory to keep what did not fit.
	waitErrnos = []unix.Errno{unix.EBADF, unix.EBADFD, unix.EBADR, unix.EEXIST, unix.EFAULT, unix.EINVAL, unix.EIO, unix.ENOMEM, unix.ENXIO,
		unix.EOPNOTSUPP, unix.EOWNERDEAD}
	// mmap without a file.
	mapErrnos = []unix.Errno{unix.EAGAIN, unix.EINVAL, unix.ENFILE, unix.ENOMEM, unix.EPERM}
	// close, munmap, io_uring_register. With EBUSY the kernel still uses memory, which is kept.
	closeErrnos = []unix.Errno{unix.EBADF, unix.EBUSY, unix.EINTR, unix.EINVAL, unix.EIO, unix.ENOMEM}
)

var rows = []row{
	{Open, StartFails, openErrnos, nil},
	{Listen, BindFails, listenErrnos, nil},
	{Adopt, Drops, adoptErrnos, nil},
	{Detach, Faults, detachErrnos, nil},

	{Accept, Later, queueErrnos, nil},
	{AcceptEnd, Later, acceptErrnos, nil},
	{AcceptEnd, Again, acceptAgainErrnos, []Form{Early}},
	{AcceptEnd, Unnoticed, nil, []Form{Late}},

	{Connect, DialFails, dialErrnos, nil},
	{ConnectEnd, DialFails, connectErrnos, nil},
	{ConnectEnd, Unnoticed, nil, []Form{Late}},

	{Ready, Faults, readyErrnos, nil},
	{ReadyEnd, Faults, pollErrnos, nil},
	{ReadyEnd, Again, []unix.Errno{unix.ECANCELED}, []Form{Early}}, // Early: the completion queue was full
	{ReadyEnd, Unnoticed, nil, []Form{Empty, Late}},

	{Receive, Faults, queueErrnos, nil},
	{ReceiveEnd, Faults, readErrnos, nil},
	{ReceiveEnd, Again, []unix.Errno{unix.EAGAIN, unix.ECANCELED, unix.EINTR, unix.ENOBUFS}, []Form{Early}}, // ENOBUFS: no receive buffer is free
	{ReceiveEnd, Unnoticed, nil, []Form{Late}},

	{Read, Faults, readErrnos, nil},
	{Read, Again, []unix.Errno{unix.EINTR}, nil},

	{Send, Faults, append([]unix.Errno{unix.EMSGSIZE}, queueErrnos...), nil},
	{SendEnd, Faults, sendErrnos, []Form{Short}},
	{SendEnd, Unnoticed, nil, []Form{Late}},

	{Map, Faults, mapErrnos, nil},
	{Wait, CoreFails, waitErrnos, nil},
	{Close, Logged, closeErrnos, nil},
}

// Table is every cell of requests on sockets, and on a core itself, in a fixed order.
func Table() []Cell {
	out := cellsOf(rows)
	for _, form := range []Form{Part, Whole} {
		for _, e := range sendErrnos {
			out = append(out, Cell{SendEnd, Fault{e, form}, Faults})
		}
	}
	return out
}

func cellsOf(rows []row) (out []Cell) {
	for _, r := range rows {
		for _, e := range r.errnos {
			out = append(out, Cell{r.request, Fault{Errno: e}, r.then})
		}
		for _, f := range r.forms {
			out = append(out, Cell{r.request, Fault{Form: f}, r.then})
		}
	}
	return out
}

// Strike lets the nth request of a kind fail, counted from 1 over all drivers that
// ask it. Any goroutine may use it.
type Strike struct {
	At    Request
	Fault Fault
	Nth   int64

	asked  atomic.Int64
	struck atomic.Bool
}

// Ask is the function that a Driver asks.
func (s *Strike) Ask(r Request) Fault {
	if r != s.At || s.asked.Add(1) != s.Nth {
		return Fault{}
	}
	s.struck.Store(true)
	return s.Fault
}

// Struck says whether the request has failed.
func (s *Strike) Struck() bool { return s.struck.Load() }

// Random lets requests fail at random, by any cell of the table. Any goroutine may
// use it; if one goroutine at a time does, the same source gives the same faults.
type Random struct {
	mu    sync.Mutex
	rng   *rand.Rand
	every map[Request]int
	cells map[Request][]Fault
	count map[Request]int
}

// NewRandom makes a Random with a source of its own. every says for each request how
// many of them there are for each that fails.
func NewRandom(rng *rand.Rand, every map[Request]int) *Random {
	n := &Random{rng: rng, every: every, cells: make(map[Request][]Fault), count: make(map[Request]int)}
	for _, c := range Table() {
		n.cells[c.Request] = append(n.cells[c.Request], c.Fault)
	}
	return n
}

// Ask is the function that a Driver asks.
func (n *Random) Ask(r Request) Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	every := n.every[r]
	if every == 0 || n.rng.IntN(every) != 0 {
		return Fault{}
	}
	n.count[r]++
	return n.cells[r][n.rng.IntN(len(n.cells[r]))]
}

// Count is how many requests of a kind have failed.
func (n *Random) Count(r Request) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[r]
}

// Stop lets no further request fail.
func (n *Random) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.every = nil
}

// Requests are those of the table, each once.
func Requests() []Request {
	var out []Request
	for _, r := range rows {
		if !slices.Contains(out, r.request) {
			out = append(out, r.request)
		}
	}
	return out
}
