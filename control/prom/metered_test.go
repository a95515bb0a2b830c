package prom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/prom"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// meteredBy has a process of this test be a server, with the metrics that it holds as JSON.
const meteredBy = "RINGMSGR_TEST_METERED"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(meteredBy)
	if !ok {
		os.Exit(m.Run())
	}
	if err := serveMetered([]byte(text)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// where says where a server of another process answers.
type where struct {
	Requests wire.Addr
	Metrics  string // a TCP address
}

// serveMetered answers requests until the standard input ends.
func serveMetered(text []byte) error {
	var kind metrics
	if err := json.Unmarshal(text, &kind); err != nil {
		return err
	}
	policy := control.StatefulServer()
	cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &policy, Plane: dataplane.Config{Cores: 1, TimeEvery: -1}}
	if kind.Histograms {
		cfg.Plane.TimeEvery = 0 // the default
	}
	if kind.Labels {
		cfg.Plane.Name = "metered"
	}
	if kind.Hooks {
		cfg.Requests = &control.RequestHooks{Replied: func(*control.Conn, any, error) {}}
	}
	m, err := control.New(cfg)
	if err != nil {
		return err
	}
	if err := m.Start(&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		_ = c.Reply(r, control.NewMessage(r.Type, nil, nil))
		return true
	}}); err != nil {
		return err
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, prom.Handler(m)) }()
	if err := json.NewEncoder(os.Stdout).Encode(where{addrs[0], listener.Addr().String()}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return m.Shutdown(context.Background())
}

// batch is how many requests are under way. They are sent together, once all of the batch
// before have been answered: so the server has the same work for each of them in every slice,
// however fast the machine is at the moment.
const batch = 32

// metered is a server in a process of its own, and a client in this one that loads it.
type metered struct {
	server  *exec.Cmd
	stdin   io.Closer
	metrics string // where they are
	client  *control.Messenger
	conn    *control.Conn
	done    chan struct{}

	each     []float64     // CPU time of the server for a request, in ns, one of each slice
	answered int           // requests in all slices
	scraping time.Duration // CPU time that went into the scrape

	// Owner: the core of the client, during a slice.
	start          control.Task
	calls          [batch]control.Request
	missing, count int
	until          time.Time
	failed         error
}

func startMetered(b *testing.B, kind metrics) *metered {
	text, err := json.Marshal(kind)
	if err != nil {
		b.Fatal(err)
	}
	s := &metered{server: exec.Command(os.Args[0]), done: make(chan struct{}, 1)}
	s.server.Env = append(os.Environ(), meteredBy+"="+string(text))
	s.server.Stderr = os.Stderr
	if s.stdin, err = s.server.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	stdout, err := s.server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.server.Start(); err != nil {
		b.Fatal(err)
	}
	var at where
	if err := json.NewDecoder(stdout).Decode(&at); err != nil {
		b.Fatal(err)
	}
	s.metrics = "http://" + at.Metrics + "/metrics"
	policy := control.LosslessClient()
	plane := dataplane.Config{Cores: 1, TimeEvery: -1}
	s.client, err = control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "a"}, Default: &policy, Plane: plane})
	if err == nil {
		err = s.client.Start()
	}
	if err == nil {
		s.conn, err = s.client.Connect(at.Requests, wire.OSD)
	}
	if err == nil {
		err = s.conn.WaitReady(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	s.start.Run = func(*control.Core) { s.send() }
	for i := range s.calls {
		s.calls[i].Message = control.NewMessage(1000, make([]byte, 64), nil)
		s.calls[i].Done = func(_ *control.Request, _ *control.Message, err error) { s.replied(err) }
	}
	return s
}

// end stops both.
func (s *metered) end(b *testing.B) {
	end(b, s.client)
	if err := s.stdin.Close(); err != nil {
		b.Error(err)
	}
	if err := s.server.Wait(); err != nil {
		b.Error(err)
	}
}

// warm has the server do all that it does later.
func (s *metered) warm(b *testing.B) {
	for range 5 {
		s.work(b)
	}
	s.workScraped(b)
	s.each, s.answered, s.scraping = s.each[:0], 0, 0
}

// cost is the CPU time for one request, in ns: what it is in a slice that is among those which
// others disturb least, and the request's part of the scrape.
func (s *metered) cost() float64 {
	return quantile(s.each, 0.25) + float64(s.scraping)/float64(s.answered)
}

// work has the server answer requests for a slice.
func (s *metered) work(b *testing.B) {
	spent, answered := s.during(b, func() {})
	s.each = append(s.each, float64(spent)/float64(answered))
}

// workScraped is work with one scrape meanwhile.
func (s *metered) workScraped(b *testing.B) {
	spent, answered := s.during(b, func() { s.scrape(b) })
	s.scraping += spent - time.Duration(quantile(s.each, 0.5)*float64(answered))
}

func (s *metered) during(b *testing.B, what func()) (spent time.Duration, answered int) {
	before := s.cpu(b)
	s.count, s.until = 0, time.Now().Add(slice)
	s.conn.Post(&s.start)
	what()
	<-s.done
	if s.failed != nil {
		b.Fatal(s.failed)
	}
	s.answered += s.count
	return s.cpu(b) - before, s.count
}

// cpu is the CPU time that the server's process has had.
func (s *metered) cpu(b *testing.B) time.Duration {
	d, err := perf.ReadCPU(s.server.Process.Pid)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// scrape asks for all metrics once, as Prometheus does.
func (s *metered) scrape(b *testing.B) {
	answer, err := http.Get(s.metrics)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); n == 0 || err != nil {
		b.Errorf("%d bytes, %v", n, err)
	}
}

// send starts a batch. It runs on the core, as replied does.
func (s *metered) send() {
	s.missing = batch
	for i := range s.calls {
		s.calls[i].Message.Retain()
		if err := s.conn.Start(&s.calls[i]); err != nil {
			s.replied(err)
		}
	}
}

// replied counts an answer, and goes on once there are all.
func (s *metered) replied(err error) {
	if err != nil {
		s.failed = err
	}
	if s.missing--; s.missing > 0 {
		return
	}
	s.count += batch
	if s.failed != nil || time.Now().After(s.until) {
		s.done <- struct{}{}
		return
	}
	s.send()
}
