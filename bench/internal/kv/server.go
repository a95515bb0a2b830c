package kv

import (
	"errors"
	"runtime"
	"strconv"

	"github.com/ringmsgr/ringmsgr/bench/internal/framed"
	"github.com/ringmsgr/ringmsgr/cmd/shared/kvformat"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Server serves a Store with package net: a goroutine per connection, which calls it.
type Server struct {
	*framed.Server
	store *Store
}

// Serve starts one on a free port of the loopback address, on the store in dir. With each
// every put has a sync of its own. Else a connection appends all puts that have come before
// it waits for their sync, which it shares with other connections, and answers them all.
func Serve(dir string, each bool) (*Server, error) {
	store, err := Open(dir, each)
	if err != nil {
		return nil, err
	}
	s := &Server{store: store}
	if s.Server, err = framed.Listen(s.serve); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// Settings says how it is used.
func (s *Server) Settings() map[string]string {
	sync := "shared: one of those who wait syncs for all"
	if s.store.each {
		sync = "one for each put"
	}
	return map[string]string{"GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0)), "syncs": sync, "compaction": "none"}
}

// Close ends it and all connections. Call it once.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), s.store.Close()) }

// serve answers on one connection.
func (s *Server) serve(c *framed.Conn) error {
	c.Data = make([]byte, RecordSize)
	written := int64(0) // in the log, by this connection
	c.BeforeAnswers = func() error { return s.store.Commit(written) }
	return c.Serve(func(m frame.MessageHeader, front, data []byte) error {
		typ, value := kvformat.Done, []byte(nil)
		var err error
		switch m.Type {
		case kvformat.Put:
			var to int64
			if to, err = s.store.Put(front, data); err == nil {
				written = to
			}
		case kvformat.Get:
			value, err = s.store.Get(front, c.Data)
		default:
			err = errors.New("neither a put nor a get")
		}
		switch {
		case errors.Is(err, errNotFound):
			typ, front = kvformat.NotFound, nil
		case err != nil:
			typ, front = kvformat.Failed, []byte(err.Error())
		default:
			front = nil
		}
		return c.Answer(m, typ, front, value)
	})
}
