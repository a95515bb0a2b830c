package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/ringmsgr/ringmsgr/bench/internal/server"
	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

const (
	// netpollFlush bounds the bytes of one write: the size of the buffer of package net's
	// server.
	netpollFlush = 64 << 10
	// closeTimeout bounds the end of a server.
	closeTimeout = 2 * time.Second
)

// netpollServer is an echo server on cloudwego/netpoll, which speaks msgr2.1 with the
// same codec as package net's.
//
// Its settings are those of netpoll's documents. One poller for every 20 CPUs is the
// default, and "theoretically only one poller is needed" below 20 (netpoll.SetNumLoops). Handlers
// run on its goroutine pool, which is the default, too. Bytes are read and written by
// the interface without copies, which its guide recommends: Next and Release, Malloc,
// WriteDirect and Flush. Replies are flushed when no complete request is waiting.
type netpollServer struct {
	secure   bool
	listener netpoll.Listener
	loop     netpoll.EventLoop
	done     chan error
}

func newNetpoll(secure bool) (*netpollServer, error) {
	l, err := netpoll.CreateListener("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netpoll: %w", err)
	}
	n := &netpollServer{secure: secure, listener: l, done: make(chan error, 1)}
	if n.loop, err = netpoll.NewEventLoop(n.request, netpoll.WithOnConnect(n.connect)); err != nil {
		l.Close()
		return nil, fmt.Errorf("netpoll: %w", err)
	}
	go func() { n.done <- n.loop.Serve(l) }()
	return n, nil
}

// Addr returns where it listens.
func (n *netpollServer) Addr() net.Addr { return n.listener.Addr() }

// Settings has the settings of netpoll.
func (n *netpollServer) Settings() map[string]string {
	return map[string]string{"GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0)), "pollers": "one for every 20 CPUs"}
}

// Close ends it and all connections.
func (n *netpollServer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := n.loop.Shutdown(ctx); err != nil {
		return err
	}
	return <-n.done
}

// stateKey is where the context of a connection has its state.
type stateKey struct{}

// connect runs the handshake, on a goroutine of the connection.
func (n *netpollServer) connect(ctx context.Context, c netpoll.Connection) context.Context {
	enc, dec, err := session.Accept(ctx, netConn{c}, n.secure)
	if err != nil {
		_ = c.Close() // the client reports its error
		return ctx
	}
	return context.WithValue(ctx, stateKey{}, &netpollConn{
		r: c.Reader(), w: c.Writer(), enc: enc, dec: dec, reply: server.NewReplier(enc), head: make([]byte, dec.HeadSize()),
	})
}

// request answers the requests that have come; there is one call at a time.
func (n *netpollServer) request(ctx context.Context, c netpoll.Connection) error {
	s, ok := ctx.Value(stateKey{}).(*netpollConn)
	if !ok {
		return c.Close() // the handshake failed
	}
	if err := s.serve(); err != nil {
		_ = c.Close() // the first error tells more
		return err
	}
	return nil
}

// netConn has the addresses of a connection as package net has them.
type netConn struct{ netpoll.Connection }

func (c netConn) LocalAddr() net.Addr  { return tcpAddr(c.Connection.LocalAddr()) }
func (c netConn) RemoteAddr() net.Addr { return tcpAddr(c.Connection.RemoteAddr()) }

func tcpAddr(a net.Addr) net.Addr {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a
	}
	return net.TCPAddrFromAddrPort(p)
}

// netpollConn is a connection in the data phase.
type netpollConn struct {
	r     netpoll.Reader
	w     netpoll.Writer
	enc   *frame.Encoder
	dec   *frame.Decoder
	reply *server.Replier
	head  []byte // of the current frame
}

// serve answers until no request is left.
func (n *netpollConn) serve() error {
	for n.r.Len() > 0 {
		f, err := n.read()
		if err != nil {
			return err
		}
		switch {
		case f.Aborted, f.Tag == frame.TagKeepalive2Ack, f.Tag == frame.TagAck:
		case f.Tag == frame.TagMessage:
			err = n.echo(&f)
		case f.Tag == frame.TagKeepalive2:
			err = n.acknowledge(f.Seg[0])
		default:
			err = fmt.Errorf("unexpected frame %v", f.Tag)
		}
		if err != nil {
			return err
		}
	}
	return n.flush()
}

// read reads one frame, whose segments are valid until the next flush.
func (n *netpollConn) read() (frame.Frame, error) {
	p, err := n.next(len(n.head))
	if err != nil {
		return frame.Frame{}, err
	}
	copy(n.head, p) // a flush releases p
	h, err := n.dec.Open(n.head)
	if err != nil {
		return frame.Frame{}, err
	}
	rest, err := n.next(n.dec.RestSize(h))
	if err != nil {
		return frame.Frame{}, err
	}
	return n.dec.Finish(h, n.head, rest)
}

// next reads size bytes. It flushes before it has to wait.
func (n *netpollConn) next(size int) ([]byte, error) {
	if n.r.Len() < size || n.w.MallocLen() >= netpollFlush {
		if err := n.flush(); err != nil {
			return nil, err
		}
	}
	return n.r.Next(size)
}

// flush writes the replies, and gives back the buffers that were read.
func (n *netpollConn) flush() error {
	if n.w.MallocLen() > 0 {
		if err := n.w.Flush(); err != nil {
			return err
		}
	}
	return n.r.Release()
}

// echo sends a message back, a large payload from where it was read.
func (n *netpollConn) echo(f *frame.Frame) error {
	if !n.reply.Large(f) || !n.reply.Gathers() {
		p, err := n.w.Malloc(n.reply.Size(f))
		if err != nil {
			return err
		}
		_, err = n.reply.Append(p[:0:len(p)], f)
		return err
	}
	before, after, err := n.reply.Gather(f)
	if err != nil {
		return err
	}
	p, err := n.w.Malloc(len(before) + len(after))
	if err != nil {
		return err
	}
	copy(p[copy(p, before):], after)
	if err := n.w.WriteDirect(f.Seg[3], len(after)); err != nil {
		return err
	}
	return n.flush() // the reply refers to the bytes that were read
}

func (n *netpollConn) acknowledge(stamp []byte) error {
	p, err := n.w.Malloc(n.enc.FrameSize(len(stamp)))
	if err != nil {
		return err
	}
	_, err = n.enc.AppendFrame(p[:0:len(p)], frame.TagKeepalive2Ack, stamp)
	return err
}
