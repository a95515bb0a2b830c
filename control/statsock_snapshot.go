package control

import (
	"fmt"
	"io"
	"os"
	"sync"
	"text/tabwriter"
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

// WriteText writes the snapshot as tables for people. The columns may change.
func (s *Snapshot) WriteText(w io.Writer) error {
	m := &s.Messenger
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "messenger\t%s\n", m.Name)
	fmt.Fprintf(t, "addresses\t%s\n", m.Addrs)
	fmt.Fprintf(t, "process\t%d\n", s.PID)
	fmt.Fprintf(t, "backend\t%s\n", m.Backend)
	if m.Fallback != "" {
		fmt.Fprintf(t, "fallback\t%s\n", m.Fallback)
	}
	fmt.Fprintf(t, "connections\t%d open, %d half open, %d made, %d over\n", m.Open, m.HalfOpen, m.Counters.Conns, m.Counters.Closed)
	fmt.Fprintf(t, "accepted\t%d, %d failed, %d refused\n", m.Counters.Accepted, m.Counters.AcceptFailures, m.Counters.Refused)
	fmt.Fprintf(t, "in flight\t%d bytes\n", m.InFlight)
	fmt.Fprintf(t, "steering\t%s\n\n", m.Steering.summary())
	fmt.Fprint(t, "CORE\tCONNS\tIN\tOUT\tBYTES IN\tBYTES OUT\tTURNS\tWRITES\tSYSCALLS\tSTALLS\t\n")
	for i := range m.Cores {
		c := &m.Cores[i]
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n",
			c.Core, c.Handlers, c.MessagesIn, c.MessagesOut, c.BytesIn, c.BytesOut, c.Turns, c.Writes, c.Driver.Syscalls, c.Stalls)
	}
	fmt.Fprint(t, "\nID\tPEER\tSTATE\tPOLICY\tPROTO\tMODE\tCORE\tIN\tOUT\tIN SEQ\tOUT SEQ\tQUEUED\tSENT\tLAG\tERROR\t\n")
	for i := range s.Conns {
		c := &s.Conns[i]
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n",
			c.ID, c.Peer, c.State, c.Policy, orDash(c.Protocol), orDash(c.Mode), c.IO.Core, c.IO.MessagesIn, c.IO.MessagesOut,
			c.IO.InSeq, c.IO.OutSeq, c.IO.Queued, c.IO.Sent, c.IO.AckLag, c.Error)
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// summary is one line about the steering.
func (s *SteeringStats) summary() string {
	if s.Active {
		return fmt.Sprintf("%s: %v", s.Mode, s.Rules)
	}
	return "none: " + s.Why
}
