package server

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Listener accepts the connections of a server on package net, which has a goroutine for
// each.
type Listener struct {
	secure   bool
	serve    func(c net.Conn, enc *frame.Encoder, dec *frame.Decoder) error
	listener net.Listener
	cancel   context.CancelFunc
	wait     sync.WaitGroup
}

// Listen starts one on a free port of the loopback address, in crc mode or in secure mode.
// serve is called on a goroutine of each connection, once its handshake is done; the
// connection ends with it.
func Listen(secure bool, serve func(c net.Conn, enc *frame.Encoder, dec *frame.Decoder) error) (*Listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("net: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Listener{secure: secure, serve: serve, listener: l, cancel: cancel}
	s.wait.Go(func() { s.accept(ctx) })
	return s, nil
}

// Addr returns where it listens.
func (s *Listener) Addr() net.Addr { return s.listener.Addr() }

// Close ends it and all connections, and waits for their goroutines. Call it once.
func (s *Listener) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.wait.Wait()
	return err
}

func (s *Listener) accept(ctx context.Context) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.wait.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			enc, dec, err := session.Accept(ctx, c, s.secure)
			if err != nil {
				return // the client reports its side of the handshake
			}
			_ = s.serve(c, enc, dec) // and of the data phase
		})
	}
}
