package interop_test

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/ringmsgr/ringmsgr/uring"
)

// backends are the I/O engines of this build. Beside giouring, epoll is that of the default build.
var backends = map[uring.Backend][]uring.Backend{
	uring.IOUring: {uring.IOUring, uring.Epoll}, uring.Giouring: {uring.IOUring}, uring.Epoll: {uring.Epoll},
}[uring.Flavour]

// combo is one row of the table: a client, a server, and the way between them.
type combo struct {
	client, server string
	clusterConfig
	protocol string // msgr2.0 or msgr2.1
	backend  uring.Backend
}

// table collects the outcome of each combo, or of other cases.
type table struct {
	header string // columns, with tabs between them; empty: those of combos
	mu     sync.Mutex
	rows   [][]string
}

const comboHeader = "connects\taccepts\tauth\tmode\tprotocol\tbackend\toutcome"

// run runs f as a subtest and adds its outcome to the table.
func (tb *table) run(t *testing.T, c combo, f func(t *testing.T)) { tb.row(t, c, "ok", f) }

// impossible is run for a combo that the protocol does not have: f checks that
// it is refused.
func (tb *table) impossible(t *testing.T, c combo, f func(t *testing.T)) {
	tb.row(t, c, "not possible", f)
}

func (tb *table) row(t *testing.T, c combo, outcome string, f func(t *testing.T)) {
	name := fmt.Sprintf("%s-to-%s/%v/%s/%s", c.client, c.server, c.clusterConfig, c.protocol, c.backend)
	if !t.Run(strings.ReplaceAll(name, " ", "-"), f) {
		outcome = "FAILED"
	}
	tb.add(c.client, c.server, c.auth, c.mode, c.protocol, string(c.backend), outcome)
}

func (tb *table) add(row ...string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = append(tb.rows, row)
}

// log prints the table.
func (tb *table) log(t *testing.T) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, cmp.Or(tb.header, comboHeader))
	for _, r := range tb.rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush() // into memory
	t.Logf("%d combinations\n%s", len(tb.rows), b.String())
}
