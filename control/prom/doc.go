// Package prom shows the statistics of a messenger to Prometheus. It is a module of its
// own, so that the library does not depend on Prometheus.
//
// One line serves them:
//
//	http.Handle("/metrics", prom.Handler(messenger))
//
// It is not published yet. Until it is, a program requires it, as the library, by a path:
//
//	go mod edit -require=github.com/ringmsgr/ringmsgr/control/prom@v0.0.0 -replace=github.com/ringmsgr/ringmsgr/control/prom=../ringmsgr/control/prom
//
// A program with other metrics registers the collector of New beside them. A scrape costs as
// much as Messenger.Stats: it waits for the next turn of each core, and allocates. Between
// scrapes there is no cost.
//
// A metric has the name of its field in the statistics, and the text of that field says more:
// the counter conns of control.Counters is ringmsgr_conns_total; a group of counters, for
// example failures, is one metric with the label kind; metrics of a core begin with
// ringmsgr_core and have the label core. Times are in seconds. All metrics have the label
// messenger. Latencies are samples (Config.Plane.TimeEvery): they count fewer messages than
// there were.
//
// A Remote does the same for the messenger of another process, which serves its statistics at
// a Unix socket. The program cmd/ringmsgr-exporter uses it.
//
// dashboard.json shows the metrics in Grafana: import it, and choose the data source.
// dashboard.html draws the same panels in a browser, without Grafana: Prometheus serves both
// at /user/dashboard.html, if --web.user-assets names their directory. alerts.yml has alert
// rules for Prometheus.
package prom
