package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// statsPatience is how long a reader gets to name a form.
	statsPatience = 100 * time.Millisecond
	// statsDeadline bounds one connection to the socket.
	statsDeadline = 10 * time.Second
	// statsReaders bounds those that are served at the same time.
	statsReaders = 8
	// statsMax bounds a snapshot that ReadStats takes.
	statsMax = 256 << 20
)

// ErrStats is wrapped by the errors of a statistics socket.
var ErrStats = errors.New("control: statistics socket")

// StatsSocket is where a process serves its statistics if nothing else is
// said: a name in the abstract name space of its network namespace.
func StatsSocket(pid int) string { return fmt.Sprintf("@ringmsgr-stats-%d", pid) }

// StatsServer serves snapshots of a messenger on a Unix socket.
type StatsServer struct {
	m    *Messenger
	l    net.Listener
	room chan struct{}
	all  sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

// ServeStats serves snapshots on a Unix socket until Close: at a path, which
// gets mode 0600, or under an abstract name that begins with "@". Only
// processes of our user and of root are answered.
//
// Each connection gets one snapshot, as JSON, or as text if the first thing
// that it sends is the line "text". One that says nothing gets JSON after a tenth
// of a second, or at once if it ends its direction.
func (m *Messenger) ServeStats(path string) (*StatsServer, error) {
	l, err := ListenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	s := &StatsServer{m: m, l: l, room: make(chan struct{}, statsReaders)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s, nil
}

// Addr is where the server listens, as ServeStats was told.
func (s *StatsServer) Addr() string { return s.l.Addr().String() }

// Close stops serving, removes the socket if it is still ours, and waits for
// the snapshots under way. The messenger must not be shut down before.
func (s *StatsServer) Close() error {
	s.stop()
	err := s.l.Close()
	s.all.Wait()
	return err
}

func (s *StatsServer) accept() {
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
			s.m.cfg.Logger.Warn("statistics socket", "err", err)
			select {
			case <-time.After(statsPatience):
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

func (s *StatsServer) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(s.ctx, func() { _ = c.Close() })() // ends what is under way
	if err := sameUser(c); err != nil {
		s.m.cfg.Logger.Warn("statistics socket", "err", err)
		return
	}
	_ = c.SetDeadline(time.Now().Add(statsPatience)) // fails on a closed one only, and so does the read
	text := wantsText(c)
	_ = c.SetDeadline(time.Now().Add(statsDeadline))
	snap, err := s.m.Snapshot()
	switch {
	case err != nil:
	case text:
		err = snap.WriteText(c)
	default:
		err = json.NewEncoder(c).Encode(snap)
	}
	if err != nil && s.ctx.Err() == nil {
		s.m.cfg.Logger.Info("statistics not delivered", "err", err)
	}
}

// wantsText reads the name of the form.
func wantsText(c io.Reader) bool {
	var line []byte
	var b [16]byte
	for len(line) < len(b) {
		n, err := c.Read(b[:])
		line = append(line, b[:n]...)
		if err != nil || strings.Contains(string(line), "\n") {
			break
		}
	}
	word, _, _ := strings.Cut(string(line), "\n")
	return strings.TrimSpace(word) == "text"
}

// sameUser checks that the process at the other end is one of our user, or of
// root.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	ctl := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(ctl, err); err != nil {
		return fmt.Errorf("who is there: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the other process belongs to user %d: %w", cred.Uid, os.ErrPermission)
	}
	return nil
}

// ReadStats gets one snapshot from the socket of another process.
func ReadStats(ctx context.Context, path string) (*Snapshot, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // ends what is under way
	s := &Snapshot{}
	if _, err = io.WriteString(c, "json\n"); err == nil {
		err = json.NewDecoder(io.LimitReader(c, statsMax)).Decode(s)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrStats, path, err)
	}
	return s, nil
}
