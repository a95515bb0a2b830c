// Package prom shows the statistics of a messenger to Prometheus. It is a module of its
// own, so that the library does not depend on Prometheus.
//
// A program serves them by one line:
//
//	http.Handle("/metrics", prom.Handler(messenger))
//
// or registers a Collector where it has its other metrics. A scrape takes what
// Messenger.Stats takes: it waits for the next turn of each core, and allocates; between
// scrapes nothing is done.
//
// The names follow the statistics, whose texts say what each means: the counter conns
// of control.Counters is ringmsgr_conns_total, a group of them such as failures is one
// metric with the label kind, and what is about a core begins with ringmsgr_core and has
// the label core. Times are in seconds. All have the label messenger.
// The latencies are samples (control.Config, Plane.TimeEvery): their counts are not those
// of all messages.
//
// A Remote does the same for the messenger of another process that serves its statistics at
// a Unix socket; the program cmd/ringmsgr-exporter is made of it.
//
// dashboard.json shows the metrics in Grafana: import it, and choose the data source.
// alerts.yml has alert rules for Prometheus.
// dashboard.html draws the same panels in a browser, without Grafana: Prometheus serves both
// if it is started with --web.user-assets and the directory where they are, at
// /user/dashboard.html.
package prom
