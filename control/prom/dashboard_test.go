package prom_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
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
			list = append(list, strings.NewReplacer("$messenger", "osd.*", "$__rate_interval", "1m").Replace(q.Expr))
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
