package prom_test

import (
	"context"
	"io"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/prom"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// BenchmarkMetrics measures what metrics cost under load, each kind by itself and all at
// once: two servers with a client each, of which one has them, answer requests in turn.
// time-ratio is the median of the quotients, with metrics through without: 1 is no cost.
// spread-percent is how far apart the quartiles of the quotients are. The aim is a cost
// below the spread, with -benchtime 60x on a machine that does nothing else.
func BenchmarkMetrics(b *testing.B) {
	for _, kind := range []struct {
		name string
		set  func(cfg *control.Config)
		// scraped: the server's metrics are asked for once in each turn.
		scraped bool
	}{
		{"nothing", func(*control.Config) {}, false},
		{"histograms", histograms, false},
		{"labels", func(cfg *control.Config) { cfg.Plane.Name = "metered" }, false},
		{"hooks", hooks, false},
		{"collector", func(*control.Config) {}, true},
		{"all", func(cfg *control.Config) { histograms(cfg); hooks(cfg); cfg.Plane.Name = "metered" }, true},
	} {
		b.Run(kind.name, func(b *testing.B) {
			without := newLoad(b, func(*control.Config) {})
			with := newLoad(b, kind.set)
			scrape := func() {}
			if kind.scraped {
				scrape = scraper(b, with.server)
			}
			for range 3 { // warm
				without.run(requests)
				with.run(requests)
			}
			var ratios []float64
			b.ResetTimer()
			for i := range b.N {
				var took [2]time.Duration
				for turn := range 2 {
					which := (i + turn) % 2 // neither is always the first
					start := time.Now()
					if which == 0 {
						without.run(requests)
					} else {
						metered(with, scrape)
					}
					took[which] = time.Since(start)
				}
				ratios = append(ratios, float64(took[1])/float64(took[0]))
			}
			b.StopTimer()
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "time-ratio")
			b.ReportMetric(100*(ratios[len(ratios)*3/4]-ratios[len(ratios)/4]), "spread-percent")
			b.ReportMetric(0, "ns/op") // of both together says nothing
		})
	}
}

const (
	// requests is how many one turn of a load has, and depth how many are under way.
	requests = 20000
	depth    = 32
)

// histograms has the latencies measured as they are by default; else none is.
func histograms(cfg *control.Config) { cfg.Plane.TimeEvery = 0 }

// hooks follows each request as a tracer does.
func hooks(cfg *control.Config) {
	cfg.Requests = &control.RequestHooks{
		Call: func(_ context.Context, _ *control.Conn, r *control.Request) func(*control.Message, error) {
			return r.Context.(*call).over
		},
		Replied: func(*control.Conn, any, error) {},
	}
}

// metered is a turn of a load that is scraped while it runs.
func metered(l *load, scrape func()) {
	l.begin(requests)
	scrape()
	<-l.done
}

// scraper asks for all metrics of a messenger once, as Prometheus does.
func scraper(b *testing.B, m *control.Messenger) func() {
	h := prom.Handler(m)
	return func() {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		if n, err := io.Copy(io.Discard, answer.Body); n == 0 || err != nil {
			b.Errorf("%d bytes, %v", n, err)
		}
	}
}

// load is a client that keeps requests to a server under way.
type load struct {
	b      *testing.B
	server *control.Messenger
	conn   *control.Conn
	calls  []*call
	done   chan struct{}

	// Owner: the core of the client, while requests are under way.
	left, missing int
}

// call is a request, again and again.
type call struct {
	control.Request
	over func(*control.Message, error) // for hooks
}

func newLoad(b *testing.B, set func(*control.Config)) *load {
	config := func(name wire.EntityName) control.Config {
		cfg := control.Config{Name: name, Plane: dataplane.Config{Cores: 1, TimeEvery: -1}}
		set(&cfg)
		return cfg
	}
	l := &load{b: b, done: make(chan struct{}, 1)}
	l.server = messenger(b, config(wire.EntityName{Type: wire.OSD, ID: "0"}), &control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		_ = c.Reply(r, control.NewMessage(r.Type, nil, nil))
		return true
	}})
	addrs, err := l.server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		b.Fatal(err)
	}
	client := messenger(b, config(wire.EntityName{Type: wire.Client, ID: "a"}))
	if l.conn, err = client.Connect(addrs[0], wire.OSD); err != nil {
		b.Fatal(err)
	}
	if err := l.conn.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	for range depth {
		c := &call{over: func(*control.Message, error) {}}
		c.Message, c.Context = control.NewMessage(1000, make([]byte, 64), nil), c
		c.Done = func(_ *control.Request, _ *control.Message, err error) {
			if err != nil {
				b.Error(err)
			}
			l.answered(c)
		}
		l.calls = append(l.calls, c)
	}
	return l
}

// run makes n requests.
func (l *load) run(n int) { l.begin(n); <-l.done }

// begin is run that does not wait for done.
func (l *load) begin(n int) {
	l.left, l.missing = n-depth, n
	for _, c := range l.calls {
		l.send(c)
	}
}

func (l *load) send(c *call) {
	c.Message.Retain()
	if err := l.conn.Start(&c.Request); err != nil {
		l.b.Error(err)
	}
}

// answered runs on the core.
func (l *load) answered(c *call) {
	if l.missing--; l.missing == 0 {
		l.done <- struct{}{}
	} else if l.left > 0 {
		l.left--
		l.send(c)
	}
}
