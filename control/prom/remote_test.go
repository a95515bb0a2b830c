package prom_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/prom"
)

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
	if up := sum(t, there, "ringmsgr_up", "messenger", "osd.0"); up != 1 || r.PID() != os.Getpid() {
		t.Errorf("up %v, pid %d", up, r.PID())
	}
	must(t, stats.Close())
	gone := scrape(t, h)
	if up := sum(t, gone, "ringmsgr_up", "messenger", "osd.0"); up != 0 || len(gone) != 1 {
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
