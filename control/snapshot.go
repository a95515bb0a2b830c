package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/statsock"
)

// snapshotAskers is how many connections are asked at the same time: those
// that wait for one core are answered in one turn of it.
const snapshotAskers = 64

// Snapshot takes one. It waits for a turn of each core: not for a dispatcher
// on a core.
func (m *Messenger) Snapshot() (*Snapshot, error) {
	st, err := m.Stats()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Time: time.Now(), PID: os.Getpid(), Messenger: st}
	conns := m.Conns()
	s.Conns = make([]ConnStats, len(conns))
	var all sync.WaitGroup
	for from := range min(snapshotAskers, len(conns)) {
		all.Go(func() {
			for i := from; i < len(conns); i += snapshotAskers {
				// A connection that has just ended does not answer: its
				// fields stay empty.
				s.Conns[i], _ = conns[i].Stats()
			}
		})
	}
	all.Wait()
	return s, nil
}

// ErrStats is wrapped by the errors of a statistics socket.
var ErrStats = errors.New("control: statistics socket")

// StatsSocket is where a process serves its statistics if nothing else is
// said: a name in the abstract name space of its network namespace.
func StatsSocket(pid int) string { return fmt.Sprintf("@ringmsgr-stats-%d", pid) }

// StatsServer serves snapshots of a messenger on a Unix socket. Any goroutine
// may call it.
type StatsServer struct{ s *statsock.Server }

// ServeStats serves snapshots on a Unix socket until Close: at a path, which
// gets mode 0600, or under an abstract name that begins with "@". Only
// processes of our user and of root are answered.
//
// Each connection gets one snapshot, as JSON, or as text if the first thing
// that it sends is the line "text". One that says nothing gets JSON after a tenth
// of a second, or at once if it ends its direction.
func (m *Messenger) ServeStats(path string) (*StatsServer, error) {
	s, err := statsock.Serve(path, func() (statsock.Snapshot, error) { return m.Snapshot() }, m.cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	return &StatsServer{s}, nil
}

// Addr is where the server listens, as ServeStats was told.
func (s *StatsServer) Addr() string { return s.s.Addr() }

// Close stops serving, removes the socket if it is still ours, and waits for
// the snapshots under way. The messenger must not be shut down before.
func (s *StatsServer) Close() error { return s.s.Close() }

// ReadStats gets one snapshot from the socket of another process.
func ReadStats(ctx context.Context, path string) (*Snapshot, error) {
	s := &Snapshot{}
	if err := statsock.Read(ctx, path, s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	return s, nil
}
