// Command ringmsgr-exporter shows the statistics of a running messenger to Prometheus. It reads
// them from the socket of that process, for example of "ringmsgr serve --stats auto", which
// needs no package of Prometheus:
//
//	ringmsgr-exporter --listen 127.0.0.1:9720 PID|SOCKET
//
// The metrics are the metrics of package prom, and of the process. Prometheus' packages make it
// a module of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/prom"
)

func main() {
	cli.Main(func(ctx context.Context, args []string) int { return run(ctx, os.Stdout, os.Stderr, args) })
}

// run is the whole program. It ends when ctx does.
func run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	stdout = cli.NewOutput(stdout)
	c := &cobra.Command{
		Use: "ringmsgr-exporter PID|SOCKET", Short: "metrics of a process for Prometheus",
		Example: "  ringmsgr-exporter --listen 127.0.0.1:9720 $(pidof ringmsgr)",
		Long: `Serves the statistics of a process at http://ADDRESS/metrics, for Prometheus. The
process serves them at a Unix socket, as "ringmsgr serve --stats auto" does: a PID finds
@ringmsgr-stats-PID, anything else is the path of the socket, or an abstract name that
begins with @. It has to be a process of the same user, or this one runs as root.

The process may come later, and may be replaced: each scrape asks the one that is there.`,
	}
	listen := c.Flags().String("listen", "127.0.0.1:9720", "`ADDRESS` to serve at: HOST:PORT, without authentication")
	conns := c.Flags().Bool("conns", true, "also sums over the connections, by the type of the peer and the state")
	c.RunE = func(_ *cobra.Command, args []string) error {
		return export(ctx, stdout, scope.StatsPath(args[0]), *listen, *conns)
	}
	return cli.Run(ctx, c, stdout, stderr, args)
}

func export(ctx context.Context, stdout io.Writer, path, listen string, conns bool) error {
	l, err := net.Listen("tcp", listen)
	if form, ok := errors.AsType[*net.AddrError](err); ok {
		return cli.Usagef("--listen %q: %s; want HOST:PORT", listen, form.Err)
	} else if err != nil {
		return fmt.Errorf("--listen %s: %w", listen, cli.Cause(err))
	}
	fmt.Fprintf(stdout, "serving %s at http://%v/metrics\n", path, l.Addr())
	server := newServer(handler(path, conns))
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler serves the metrics of the messenger at a socket, and of its process.
func handler(path string, conns bool) http.Handler {
	var opts []prom.Option
	if conns {
		opts = append(opts, prom.Conns())
	}
	remote := prom.NewRemote(path, opts...)
	// Before the first scrape the PID is 0, which no process has: then it has no metrics.
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{PidFn: func() (int, error) { return remote.PID(), nil }})
	all := prometheus.NewRegistry()
	all.MustRegister(remote, process)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<a href="/metrics">metrics</a>`)
	})
	return mux
}

// newServer bounds the time of a connection that is idle, or takes its answer slowly: each
// holds a descriptor. A scrape comes every minute or more often, and waits for the messenger
// for 5 s at most.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second,
	}
}
