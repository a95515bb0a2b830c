package prom_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/prom"
)

// dashboard are the parts of dashboard.json that the tests read.
type dashboard struct {
	Panels []struct {
		Type, Title string
		FieldConfig struct {
			Defaults struct{ Unit string }
		}
		Targets []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	must(t, err)
	must(t, json.Unmarshal(text, &d))
	return d
}

// queries are the queries of the dashboard, with its variables filled in.
func (d dashboard) queries() (list []string) {
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			list = append(list, strings.NewReplacer("$messenger", "mds.*", "$__rate_interval", "1m").Replace(q.Expr))
		}
	}
	return list
}

// dashboard.html draws all of dashboard.json, as long as it knows the kinds of panels, the
// units and the variables of the queries.
// Matrix: OB-07
func TestThePageKnowsWhatTheDashboardUses(t *testing.T) {
	page, err := os.ReadFile("dashboard.html")
	must(t, err)
	d := readDashboard(t)
	if len(d.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	variable := regexp.MustCompile(`\$\w+`)
	label := regexp.MustCompile(`{{\w+}}`)
	for _, p := range d.Panels {
		if p.Type != "stat" && p.Type != "timeseries" {
			t.Errorf("panel %q is a %s, which the page does not draw", p.Title, p.Type)
		}
		if unit := p.FieldConfig.Defaults.Unit; !strings.Contains(string(page), "\n  "+unit+": { scale:") {
			t.Errorf("panel %q has the unit %q, which the page does not know", p.Title, unit)
		}
		for _, q := range p.Targets {
			for _, v := range variable.FindAllString(q.Expr, -1) {
				if !strings.Contains(string(page), `"`+v+`"`) {
					t.Errorf("panel %q asks with %s, which the page does not fill in", p.Title, v)
				}
			}
			if rest := label.ReplaceAllString(q.LegendFormat, ""); strings.ContainsAny(rest, "{}") {
				t.Errorf("panel %q has the legend %q, which the page does not fill in", p.Title, q.LegendFormat)
			}
		}
	}
}

// panel is a panel in a browser.
type panel struct {
	Title, State, Text string
	Lines              int
}

// watcher is a page that shows the dashboard's, and reports to the test what is drawn.
const watcher = `<!doctype html>
<iframe src="/user/dashboard.html#span=2m" width="1400" height="1000"></iframe>
<script>
  setInterval(() => fetch("/seen", { method: "POST", body: JSON.stringify(
    [...document.querySelector("iframe").contentDocument.querySelectorAll("main section")].map((s) => ({
      title: s.querySelector("h2")?.textContent, state: s.dataset.state, text: s.textContent,
      lines: [...s.querySelectorAll("polyline")].filter((l) => l.getAttribute("points") && !l.getAttribute("points").includes("NaN")).length,
    }))) }), 200);
</script>`

// Prometheus alone shows the dashboard: a browser draws each panel of its files.
// Matrix: OB-07
func TestABrowserDrawsEachPanelOfTheDashboard(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("no browser here, which Debian's package chromium has: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	prometheus := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: prometheusUnderLoad(t, ctx)})
	seen := make(chan []panel)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/watch":
			_, _ = w.Write([]byte(watcher))
		case "/seen":
			var panels []panel
			if err := json.NewDecoder(r.Body).Decode(&panels); err != nil {
				t.Error(err)
			}
			select {
			case seen <- panels:
			case <-ctx.Done():
			}
		default:
			prometheus.ServeHTTP(w, r)
		}
	}))
	defer pages.Close()
	defer cancel() // ends waiting handlers
	openBrowser(t, browser, pages.URL+"/watch")
	var panels []panel
	for missing := "every panel"; missing != ""; missing = notDrawn(readDashboard(t), panels) {
		select {
		case panels = <-seen:
		case <-ctx.Done():
			t.Fatalf("not drawn: %s; the browser shows %+v", missing, panels)
		}
	}
}

// openBrowser has a browser without a window show a page until the test ends.
func openBrowser(t *testing.T, browser, page string) {
	t.Helper()
	profile, err := os.MkdirTemp("", "ringmsgr-browser")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(profile) }) // its processes may still be on their way out
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--user-data-dir="+profile, page)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// notDrawn returns the title of a panel that a browser does not show yet, with a number or
// at least one line.
func notDrawn(d dashboard, shown []panel) string {
	for i, p := range d.Panels {
		if i >= len(shown) || shown[i].Title != p.Title || shown[i].State != "drawn" {
			return p.Title
		}
		if p.Type == "timeseries" && shown[i].Lines == 0 || p.Type == "stat" && !strings.ContainsAny(strings.TrimPrefix(shown[i].Text, p.Title), "0123456789") {
			return p.Title
		}
	}
	return ""
}

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

// ask sends a request to Prometheus, and returns the text of the answer.
func ask(ctx context.Context, address, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/"+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
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
	t.Cleanup(func() { must(t, stats.Close()) })
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
	if rules, err := ask(ctx, address, "rules?type=alert"); err != nil || strings.Count(rules, `"health":"`) < 7 || strings.Contains(rules, `"health":"err"`) {
		t.Errorf("alert rules: %s, %v", rules, err)
	}
}

// answers waits until Prometheus has numbers for a query: a rate takes two scrapes.
func answers(t *testing.T, ctx context.Context, address, expr string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		result, err := ask(ctx, address, "query?query="+url.QueryEscape(expr))
		if err == nil && strings.Contains(result, `"value":[`) && !strings.Contains(result, `"NaN"`) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %s, %v", expr, result, err)
		}
	}
}
