package prom

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringmsgr/ringmsgr/control"
)

// remoteTimeout bounds how long a scrape waits for the statistics of another process.
const remoteTimeout = 5 * time.Second

// Remote shows the statistics of a messenger in another process, which serves them at a
// Unix socket (control.Messenger.ServeStats). Any goroutine may use it.
//
// A scrape fails until the process was reached once. When the process is gone later,
// ringmsgr_up is 0.
type Remote struct {
	path string
	opts []Option

	mu   sync.Mutex
	last *Collector // knows the messenger's name; nil: not reached yet
	pid  int        // of the process, the last time it was reached
}

// NewRemote makes a collector of the statistics at path, the argument of ServeStats.
func NewRemote(path string, opts ...Option) *Remote { return &Remote{path: path, opts: opts} }

// PID is the id of the process in the last scrape; 0 before the first.
func (r *Remote) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

// Describe implements prometheus.Collector. It describes nothing: all metrics have the name
// of the messenger, which only a scrape brings.
func (r *Remote) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *Remote) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), remoteTimeout)
	defer cancel()
	s, err := control.ReadStats(ctx, r.path)
	switch c := r.reached(s); {
	case err == nil:
		c.show(out, &s.Messenger, nil)
		if c.conns != nil {
			c.conns.show(out, s.Conns)
		}
	case c != nil:
		out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0)
	default:
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("ringmsgr_up", upHelp, nil, nil), err)
	}
}

// reached returns the collector for a snapshot, or the last one without it.
func (r *Remote) reached(s *control.Snapshot) *Collector {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil {
		return r.last
	}
	r.pid = s.PID
	if r.last == nil || r.last.name != s.Messenger.Name {
		r.last = named(s.Messenger.Name, r.opts...)
	}
	return r.last
}
