package control

import (
	"context"
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
	// Stats is a snapshot of a messenger and its cores; String is a table for people. Its fields:
	// go doc control/internal/stats.Stats.
	Stats = stats.Stats
	// ConnStats is a snapshot of one connection; String is a table for people. Its fields: go doc
	// control/internal/stats.ConnStats.
	ConnStats = stats.ConnStats
	// Snapshot has the Stats of a messenger, and the ConnStats of its connections (go doc
	// control/internal/stats.Snapshot). Cores are asked one after the other.
	Snapshot = stats.Snapshot
	// Counters count for a whole messenger; go doc control/internal/stats.Counters has them.
	Counters = stats.Counters
)

// Stats takes a snapshot, at the next turn of the owning core: not on a core.
func (c *Conn) Stats() (ConnStats, error) { return c.s.Stats() }

// Stats takes a snapshot, at the next turn of each core. After Shutdown it
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

// Snapshot takes a snapshot, at a turn of each core.
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

// StatsSocket is the usual socket for the statistics of a process: a name in the abstract name
// space of its network namespace.
func StatsSocket(pid int) string { return fmt.Sprintf("@ringmsgr-stats-%d", pid) }

// ServeStats serves snapshots on a Unix socket until Close, which comes before Shutdown: at a
// path, with mode 0600, or under an abstract name that begins with "@". Only processes of our
// user and of root are answered.
//
// Each connection gets one snapshot, as text if its first line is "text", else as JSON. A
// silent connection gets JSON after a tenth of a second.
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
