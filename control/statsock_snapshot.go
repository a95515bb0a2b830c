package control

import (
	"io"
	"os"
	"sync"
	"time"
)

// Snapshot is everything that can be seen of a messenger at one moment, but for
// the cores, each of which is asked a little later than the one before.
type Snapshot struct {
	Time      time.Time   `json:"time"`
	PID       int         `json:"pid"`
	Messenger Stats       `json:"messenger"`
	Conns     []ConnStats `json:"conns"` // oldest first
}

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
				// What it does not say, for it is just over, stays empty.
				s.Conns[i], _ = conns[i].Stats()
			}
		})
	}
	all.Wait()
	return s, nil
}

// WriteText writes what String returns.
func (s *Snapshot) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, s.String())
	return err
}
