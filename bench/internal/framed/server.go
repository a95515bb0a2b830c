package framed

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
)

// Server accepts connections.
type Server struct {
	listener net.Listener
	cancel   context.CancelFunc
	wait     sync.WaitGroup
}

// Listen starts one on a free port of the loopback address. serve is called on a goroutine
// of each connection, once its handshake is done; the connection ends with it.
func Listen(serve func(*Conn) error) (*Server, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("net: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{listener: l, cancel: cancel}
	s.wait.Go(func() { s.accept(ctx, serve) })
	return s, nil
}

// Addr returns where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends it and all connections, and waits for their goroutines. Call it once.
func (s *Server) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.wait.Wait()
	return err
}

func (s *Server) accept(ctx context.Context, serve func(*Conn) error) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.wait.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			enc, dec, err := session.Accept(ctx, c, false)
			if err != nil {
				return // the client reports what it saw of it
			}
			_ = serve(newConn(c, enc, dec)) // and here too
		})
	}
}
