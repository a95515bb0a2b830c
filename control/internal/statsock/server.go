// Package statsock serves snapshots of a process on a Unix socket, and reads
// those of another process. What a snapshot is its user decides: here it is
// something that has a JSON form and a text form.
package statsock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/localsock"
)

const (
	// patience is how long a reader gets to name a form.
	patience = 100 * time.Millisecond
	// deadline bounds one connection to the socket.
	deadline = 10 * time.Second
	// maxReaders bounds those that are served at the same time.
	maxReaders = 8
	// maxSnapshot bounds a snapshot that Read takes.
	maxSnapshot = 256 << 20
)

// Snapshot is what a reader gets: its JSON encoding, or the text that it writes.
type Snapshot interface{ WriteText(w io.Writer) error }

// Server serves snapshots until Close.
type Server struct {
	take func() (Snapshot, error)
	log  *slog.Logger
	l    net.Listener
	room chan struct{}
	all  sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

// Serve serves what take takes at a path, which gets mode 0600, or under an
// abstract name that begins with "@". Only processes of our user and of root are
// answered. take is called on goroutines of the server, up to 8 at the same time.
//
// Each connection gets one snapshot, as JSON, or as text if the first thing
// that it sends is the line "text". One that says nothing gets JSON after a tenth
// of a second, or at once if it ends its direction.
func Serve(path string, take func() (Snapshot, error), log *slog.Logger) (*Server, error) {
	l, err := localsock.Listen(path)
	if err != nil {
		return nil, err
	}
	s := &Server{take: take, log: log, l: l, room: make(chan struct{}, maxReaders)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s, nil
}

// Addr is where the server listens, as Serve was told.
func (s *Server) Addr() string { return s.l.Addr().String() }

// Close stops serving, removes the socket if it is still ours, and waits for
// the snapshots under way.
func (s *Server) Close() error {
	s.stop()
	err := s.l.Close()
	s.all.Wait()
	return err
}

func (s *Server) accept() {
	for {
		select {
		case s.room <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		c, err := s.l.Accept()
		if err != nil {
			<-s.room
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("statistics socket", "err", err)
			select {
			case <-time.After(patience):
			case <-s.ctx.Done():
			}
			continue
		}
		s.all.Go(func() {
			defer func() { <-s.room }()
			s.serve(c.(*net.UnixConn))
		})
	}
}

func (s *Server) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(s.ctx, func() { _ = c.Close() })() // ends what is under way
	if err := localsock.SameUser(c); err != nil {
		s.log.Warn("statistics socket", "err", err)
		return
	}
	_ = c.SetDeadline(time.Now().Add(patience))                        // fails on a closed one only, and so does the read
	form, _ := bufio.NewReader(io.LimitReader(c, 16)).ReadString('\n') // or what there is
	_ = c.SetDeadline(time.Now().Add(deadline))
	snap, err := s.take()
	switch {
	case err != nil:
	case strings.TrimSpace(form) == "text":
		err = snap.WriteText(c)
	default:
		err = json.NewEncoder(c).Encode(snap)
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Info("statistics not delivered", "err", err)
	}
}

// Read decodes one snapshot from the socket of another process. ctx ends it.
func Read(ctx context.Context, path string, into any) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })() // ends what is under way
		if _, err = io.WriteString(c, "json\n"); err == nil {
			err = json.NewDecoder(io.LimitReader(c, maxSnapshot)).Decode(into)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done() // a dial has no other limit, and may notice it first
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case c == nil:
		return err // it has the path
	}
	return fmt.Errorf("%s: %w", path, err)
}
