package prom_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/prom"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var must = drivertest.Must

// messenger starts one that ends with the test.
func messenger(t testing.TB, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	m, err := control.New(cfg)
	must(t, err)
	t.Cleanup(func() { end(t, m) })
	must(t, m.Start(chain...))
	return m
}

func end(t testing.TB, m *control.Messenger) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, m.Shutdown(ctx))
}

// busy is a server that has answered n requests, and has the acks of its answers: the last one comes a moment later.
func busy(t testing.TB, n int) *control.Messenger {
	t.Helper()
	server, conn := pair(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range n {
		reply, err := conn.Call(ctx, control.NewMessage(1000, []byte("question"), nil))
		must(t, err)
		reply.Release()
	}
	must(t, msgrtest.Until(ctx, func() bool {
		st, err := server.Conns()[0].Stats()
		return err == nil && st.IO.Sent == 0
	}))
	return server
}

// pair is a server that answers requests, whose name is no UTF-8, and a connection to it.
func pair(t testing.TB) (*control.Messenger, *control.Conn) {
	t.Helper()
	policy, other := control.StatefulServer(), control.LosslessClient()
	plane := loop.Config{Cores: 2, TimeEvery: 1}
	server := messenger(t, control.Config{Name: wire.EntityName{Type: wire.MDS, ID: "\xff\xfe"}, Default: &policy, Plane: plane},
		&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
			_ = c.Reply(r, control.NewMessage(r.Type, bytes.Clone(r.Front), nil))
			return true
		}})
	addrs, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	client := messenger(t, control.Config{Name: wire.EntityName{Type: wire.Client, ID: "a"}, Default: &other, Plane: plane})
	conn, err := client.Connect(addrs[0], wire.MDS)
	must(t, err)
	return server, conn
}

// scrape asks the handler as Prometheus does.
func scrape(t testing.TB, h http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	answer, err := http.Get(server.URL)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v, %s", err, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return all
}

// sum is the sum of all counters and gauges of a family whose labels have the given values; of
// the counts of histograms.
func sum(t testing.TB, all map[string]*dto.MetricFamily, name string, labels ...string) (n float64) {
	t.Helper()
	f := all[name]
	if f == nil {
		t.Errorf("there is no metric %s", name)
		return 0
	}
next:
	for _, m := range f.Metric {
		have := make(map[string]string)
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		for i := 0; i < len(labels); i += 2 {
			if have[labels[i]] != labels[i+1] {
				continue next
			}
		}
		n += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return n
}

func TestAScrapeHasWhatTheMessengerDid(t *testing.T) {
	const requests = 50
	all := scrape(t, prom.Handler(busy(t, requests), prom.Conns()))
	for _, one := range []struct {
		name   string
		labels []string
		low    float64
		high   float64
	}{
		{"ringmsgr_up", nil, 1, 1},
		{"ringmsgr_info", nil, 1, 1},
		{"ringmsgr_open", []string{"messenger", "mds.\ufffd\ufffd"}, 1, 1},
		{"ringmsgr_conns_total", nil, 1, 1},
		{"ringmsgr_accepted_total", nil, 1, 1},
		{"ringmsgr_failures_total", []string{"kind", "banner"}, 0, 0},
		{"ringmsgr_core_state", []string{"state", "running"}, 2, 2},
		{"ringmsgr_core_messages_in_total", nil, requests, requests},
		{"ringmsgr_core_messages_out_total", nil, requests, requests},
		{"ringmsgr_core_cpu_seconds_total", nil, 1e-6, 60},
		{"ringmsgr_core_driver_total", []string{"kind", "syscalls"}, requests, 1e9},
		{"ringmsgr_core_driver_in_flight", nil, 0, 1e6},
		{"ringmsgr_core_latency_seconds", []string{"of", "queue"}, requests, requests},
		{"ringmsgr_core_latency_seconds", []string{"of", "ack"}, requests, requests},
		{"ringmsgr_peers_connections", []string{"peer_type", "client", "state", "ready"}, 1, 1},
		{"go_goroutines", nil, 1, 1e6},
	} {
		if n := sum(t, all, one.name, one.labels...); n < one.low || n > one.high {
			t.Errorf("%s %v is %v, want %v to %v", one.name, one.labels, n, one.low, one.high)
		}
	}
}

func TestTheBucketsOfALatencyAddUp(t *testing.T) {
	all := scrape(t, prom.Handler(busy(t, 20)))
	for _, m := range all["ringmsgr_core_latency_seconds"].Metric {
		before := uint64(0)
		for _, b := range m.Histogram.Bucket {
			if b.GetCumulativeCount() < before {
				t.Errorf("bucket %v has %d, the one before %d", b.GetUpperBound(), b.GetCumulativeCount(), before)
			}
			before = b.GetCumulativeCount()
		}
		if before != m.Histogram.GetSampleCount() || len(m.Histogram.Bucket) != 31 {
			t.Errorf("%d of %d in %d buckets", before, m.Histogram.GetSampleCount(), len(m.Histogram.Bucket))
		}
	}
}

// The names are as Prometheus wants them, and each metric has a text, which says "bytes" only if the name does.
func TestTheLinterOfPrometheusIsContent(t *testing.T) {
	m := busy(t, 1)
	problems, err := testutil.CollectAndLint(prom.New(m, prom.Conns()))
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for name, f := range scrape(t, prom.Handler(m, prom.Conns())) {
		if !strings.HasPrefix(name, "ringmsgr_") {
			continue
		}
		if text := f.GetHelp(); len(text) < 10 || strings.HasPrefix(text, "Bytes ") && !strings.Contains(name, "bytes") {
			t.Errorf("%s has the text %q", name, text)
		}
	}
}

func TestAfterTheShutdownTheLastCountsAreShown(t *testing.T) {
	m := busy(t, 5)
	c := prom.Handler(m)
	end(t, m)
	all := scrape(t, c)
	if up, n := sum(t, all, "ringmsgr_up"), sum(t, all, "ringmsgr_core_messages_in_total"); up != 0 || n != 5 {
		t.Errorf("up %v, %v messages", up, n)
	}
}

// Every metric that the dashboard and the alert rules ask for is one.
func TestTheDashboardAndTheAlertsAskForWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	must(t, err)
	alerts, err := os.ReadFile("alerts.yml")
	must(t, err)
	text = append(text, alerts...)
	all := scrape(t, prom.Handler(busy(t, 1), prom.Conns()))
	asked := regexp.MustCompile(`(ringmsgr|go|process)_[a-z0-9_]+`).FindAllString(string(text), -1)
	if len(asked) < 20 {
		t.Errorf("only %d metrics", len(asked))
	}
	for _, name := range asked {
		if name == "ringmsgr_steered_total" {
			continue // only where steering is allowed
		}
		if all[strings.TrimSuffix(name, "_bucket")] == nil && all[name] == nil {
			t.Errorf("%s is no metric", name)
		}
	}
}

// remote is the answer to a scrape of a socket.
func remote(path string) (*prom.Remote, http.Handler) {
	r := prom.NewRemote(path, prom.Conns())
	all := prometheus.NewRegistry()
	all.MustRegister(r)
	return r, promhttp.HandlerFor(all, promhttp.HandlerOpts{})
}

// Matrix: OB-07
func TestTheSocketOfAProcessHasTheSameMetrics(t *testing.T) {
	const requests = 50
	m := busy(t, requests)
	path := filepath.Join(t.TempDir(), "stats")
	stats, err := m.ServeStats(path)
	must(t, err)
	r, h := remote(path)
	here, there := scrape(t, prom.Handler(m, prom.Conns())), scrape(t, h)
	for name, f := range here {
		if got := there[name]; got == nil && name[:3] == "rin" {
			t.Errorf("there is no %s", name)
		} else if got != nil && (len(got.Metric) != len(f.Metric) || got.GetType() != f.GetType() || got.GetHelp() != f.GetHelp()) {
			t.Errorf("%s: %v, want what is like %v", name, got, f)
		}
	}
	for _, name := range []string{"ringmsgr_core_messages_in_total", "ringmsgr_core_latency_seconds"} {
		if a, b := sum(t, here, name), sum(t, there, name); a != b || a < requests {
			t.Errorf("%s: %v here, %v there", name, a, b)
		}
	}
	if up := sum(t, there, "ringmsgr_up", "messenger", "mds.\ufffd\ufffd"); up != 1 || r.PID() != os.Getpid() {
		t.Errorf("up %v, pid %d", up, r.PID())
	}
	must(t, stats.Close())
	gone := scrape(t, h)
	if up := sum(t, gone, "ringmsgr_up", "messenger", "mds.\ufffd\ufffd"); up != 0 || len(gone) != 1 {
		t.Errorf("up %v, %d metrics of a process that is gone", up, len(gone))
	}
}

func TestAProcessThatWasNeverThereFailsTheScrape(t *testing.T) {
	r, h := remote(control.StatsSocket(0))
	server := httptest.NewServer(h)
	defer server.Close()
	answer, err := http.Get(server.URL)
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusInternalServerError || r.PID() != 0 {
		t.Errorf("%s, pid %d", answer.Status, r.PID())
	}
}
