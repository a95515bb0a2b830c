package uring_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// An echo server for three clients: one thread and one driver, which is a ring,
// or epoll where the kernel refuses one. All that a turn sends goes to the kernel
// with the next Wait, in one system call.
func Example() {
	const clients = 3
	addr, ended := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() { ended <- serveEcho(addr, clients) }()

	to, ok := <-addr
	for n := 0; ok && n < clients; n++ {
		answer, err := ask(to, fmt.Sprintf("hello %d", n))
		fmt.Println(answer, err)
	}
	fmt.Println("server:", <-ended)
	// Output:
	// hello 0 <nil>
	// hello 1 <nil>
	// hello 2 <nil>
	// server: <nil>
}

// ask is a client: it sends text, reads the echo and hangs up.
func ask(to netip.AddrPort, text string) (string, error) {
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	answer := make([]byte, len(text))
	_, err = io.ReadFull(conn, answer)
	return string(answer), err
}

// echoServer belongs to one locked thread, as its driver does.
type echoServer struct {
	driver uring.Driver
	conns  map[uint64]*echoConn // by the user word of their requests
	left   int                  // clients that have not hung up
}

// echoConn reads only while nothing is in flight, so that a client that does
// not read is not read either.
type echoConn struct {
	sock    uring.Socket
	user    uint64
	buf     []byte     // the driver's while a send is in flight
	list    *uring.Vec // of what is sent; the driver's like buf
	sending bool
}

// serveEcho says where it listens, or closes addr if it cannot, and ends when so
// many clients have hung up.
func serveEcho(addr chan<- netip.AddrPort, clients int) (err error) {
	defer close(addr)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	driver, err := uring.Open(uring.Config{})
	if err != nil {
		return err
	}
	s := &echoServer{driver: driver, conns: make(map[uint64]*echoConn), left: clients}
	defer func() {
		closed := driver.CloseDriver() // from here on the lists are ours again
		for _, c := range s.conns {
			c.list.Free()
		}
		if err == nil {
			err = closed
		}
	}()
	listener, err := driver.Listen(netip.MustParseAddrPort("127.0.0.1:0"), uring.ListenOptions{})
	if err != nil {
		return err
	}
	if _, err := driver.Arm(uring.KindAccept, listener, 0); err != nil {
		return err
	}
	addr <- driver.LocalAddr(listener)
	for s.left > 0 {
		completions, err := driver.Wait(-1) // submits what the last turn has queued
		if err != nil {
			return err
		}
		for i := range completions {
			if err := s.complete(&completions[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete handles one answer of the driver.
func (s *echoServer) complete(c *uring.Completion) error {
	if c.Kind == uring.KindAccept {
		if errno := c.Errno(); errno != 0 {
			return errno
		}
		return s.accepted(int(c.Res))
	}
	conn := s.conns[c.User]
	if c.Kind == uring.KindSend {
		conn.sending = false
	}
	return s.echo(conn)
}

// accepted watches a new connection.
func (s *echoServer) accepted(fd int) error {
	sock, err := s.driver.Adopt(fd)
	if err != nil {
		return err
	}
	list, err := uring.NewVec(1)
	if err != nil {
		return err
	}
	conn := &echoConn{sock: sock, user: uint64(len(s.conns) + 1), buf: make([]byte, 4096), list: list}
	s.conns[conn.user] = conn
	_, err = s.driver.Arm(uring.KindReady, sock, conn.user)
	return err
}

// echo reads what is there and queues it to be sent. A connection that was closed
// gets the last answers of its requests, and does nothing.
func (s *echoServer) echo(c *echoConn) error {
	for c.sock.Valid() && !c.sending {
		n, errno := s.driver.Recv(c.sock, c.buf, nil)
		if errno == unix.EAGAIN {
			return nil // Ready says when there is more
		}
		if n == 0 || errno != 0 {
			s.driver.Close(c.sock)
			c.sock = uring.Socket{}
			s.left--
			return nil
		}
		c.list.Reset()
		c.list.Append(c.buf[:n])
		done, _, err := s.driver.Send(c.sock, c.list, c.user, 0)
		if err != nil {
			return err
		}
		c.sending = !done // an answer follows
	}
	return nil
}
