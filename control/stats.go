package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/statsock"
)

// The statistics of a messenger; package internal/stats has the fields, and the texts.
type (
	// Stats is a snapshot of a messenger and its cores; String is a table for people.
	Stats = stats.Stats
	// ConnStats is a snapshot of one connection; String is a table for people.
	ConnStats = stats.ConnStats
	// Snapshot is everything that can be seen of a messenger at one moment, but for the
	// cores, each of which is asked a little later than the one before.
	Snapshot = stats.Snapshot
	// Counters count for a whole messenger.
	Counters = stats.Counters
	// ConnCounters count for one connection.
	ConnCounters = stats.ConnCounters
	// Placement says which core owns a connection, and which was meant to.
	Placement = stats.Placement
)

// Stats takes a snapshot. It waits for the owning core's next turn: not for a
// dispatcher on a core.
func (c *Conn) Stats() (ConnStats, error) { return c.s.Stats() }

// Stats takes a snapshot. It waits for the next turn of each core. After Shutdown it
// returns the last counts of the cores, with loop.ErrStopped.
func (m *Messenger) Stats() (Stats, error) {
	st := Stats{
		InFlight: m.inFlight.Used(), InFlightLimit: m.inFlight.Limit(), Waiting: m.inFlight.Waiting(),
		Sending: m.sending.Used(), SendingLimit: m.sending.Limit(),
	}
	err := m.s.Stats(&st)
	st.Counters.Undispatched = m.chain.dropped.Load()
	return st, err
}

// snapshotAskers is the number of connections that are asked at the same time: one turn of a
// core answers all of its own.
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

// ServeStats serves snapshots on a Unix socket until Close, which comes before Shutdown and
// may be called by any goroutine: at a path, which
// gets mode 0600, or under an abstract name that begins with "@". Only
// processes of our user and of root are answered.
//
// Each connection gets one snapshot, as JSON, or as text if the first thing
// that it sends is the line "text". One that says nothing gets JSON after a tenth
// of a second, or at once if it ends its direction.
func (m *Messenger) ServeStats(path string) (io.Closer, error) {
	s, err := statsock.Serve(path, func() (statsock.Snapshot, error) { return m.Snapshot() }, m.cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	return s, nil
}

// ReadStats gets one snapshot from the socket of another process.
func ReadStats(ctx context.Context, path string) (*Snapshot, error) {
	s := &Snapshot{}
	if err := statsock.Read(ctx, path, s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	return s, nil
}
