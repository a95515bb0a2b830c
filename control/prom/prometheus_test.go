package prom_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/prom"
)

// patience bounds the wait for another program: a machine may be slow.
const patience = 2 * time.Minute

// startPrometheus starts the Prometheus of this machine, which scrapes targets and serves the
// files of this package at /user/. It returns its address.
func startPrometheus(t *testing.T, ctx context.Context, targets ...string) (address string) {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skipf("no Prometheus here, which Debian's package prometheus has: %v", err)
	}
	here, err := os.Getwd()
	must(t, err)
	dir := t.TempDir()
	config := "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nrule_files: ['" + filepath.Join(here, "alerts.yml") + "']\nscrape_configs:\n  - job_name: ringmsgr\n    static_configs: [{targets: ['" + strings.Join(targets, "','") + "']}]\n"
	file := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.CommandContext(ctx, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0", "--web.user-assets="+here)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	log, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	said := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(said)
		where := regexp.MustCompile(`msg="?Listening on"? address=(\S+)`)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if m := where.FindStringSubmatch(lines.Text()); m != nil {
				said <- m[1]
				_, _ = io.Copy(io.Discard, log)
			}
		}
	}()
	t.Cleanup(func() {
		<-ended
		_ = cmd.Wait() // the interrupt ends it
	})
	address, ok := <-said
	if !ok {
		t.Fatal("Prometheus did not say where it listens")
	}
	return address
}

// sample is one value of an answer of Prometheus.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// ask sends a query to Prometheus.
func ask(ctx context.Context, address, expr string) ([]sample, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var a struct {
		Error string `json:"error"`
		Data  struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&a); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, fmt.Errorf("%s", a.Error)
	}
	return a.Data.Result, nil
}

// prometheusUnderLoad returns where a Prometheus answers that scrapes a server twice: by a
// handler of its program, and by its statistics socket. The server answers requests until
// the test ends.
func prometheusUnderLoad(t *testing.T, ctx context.Context) (address string) {
	t.Helper()
	server, conn := pair(t)
	path := filepath.Join(t.TempDir(), "stats")
	stats, err := server.ServeStats(path)
	must(t, err)
	t.Cleanup(func() {
		if err := stats.Close(); err != nil {
			t.Error(err)
		}
	})
	_, over := remote(path)
	var targets []string
	for _, h := range []http.Handler{prom.Handler(server, prom.Conns()), over} {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		targets = append(targets, strings.TrimPrefix(s.URL, "http://"))
	}
	serving, stop := context.WithCancel(ctx)
	address = startPrometheus(t, serving, targets...)
	t.Cleanup(stop) // runs before the wait for its end
	load, done := context.WithCancel(ctx)
	ended := make(chan struct{})
	t.Cleanup(func() {
		done()
		<-ended
	})
	go func() {
		defer close(ended)
		for load.Err() == nil {
			if reply, err := conn.Call(load, control.NewMessage(1000, []byte("question"), nil)); err == nil {
				reply.Release()
			} else if load.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	return address
}

// Prometheus scrapes a server that answers requests meanwhile, both from the program
// itself and over its statistics socket, and has a number for every query of the
// dashboard.
// Matrix: OB-07
func TestARealPrometheusAnswersTheDashboardUnderLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	address := prometheusUnderLoad(t, ctx)
	for _, expr := range append(readDashboard(t).queries(), `count(ringmsgr_up == 1) == 2`, `sum(rate(ringmsgr_core_messages_in_total[1m])) > 0`,
		`max(rate(ringmsgr_core_cpu_seconds_total[1m])) > 0 < 1.5`) {
		answers(t, ctx, address, expr)
	}
	rules, err := http.Get("http://" + address + "/api/v1/rules?type=alert")
	must(t, err)
	defer rules.Body.Close()
	if all, err := io.ReadAll(rules.Body); err != nil || strings.Count(string(all), `"health":"`) < 7 || strings.Contains(string(all), `"health":"err"`) {
		t.Errorf("alert rules: %s, %v", all, err)
	}
}

// answers waits until Prometheus has numbers for a query: a rate takes two scrapes.
func answers(t *testing.T, ctx context.Context, address, expr string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		result, err := ask(ctx, address, expr)
		ok := err == nil && len(result) > 0
		for _, s := range result {
			ok = ok && s.Value[1] != "NaN"
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v, %v", expr, result, err)
		}
	}
}
