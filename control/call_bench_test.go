package control_test

import (
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// caller is a client that keeps requests under way.
type caller struct {
	t        testing.TB
	conn     *control.Conn
	payload  []byte
	requests []*control.Request // nil: bare
	messages []*control.Message
	left     int // to be sent
	missing  int // answers
	done     chan struct{}
}

func newCaller(t testing.TB, start bool, depth int) *caller {
	server := startMessenger(t, oneCore(t, "osd.0", uring.Auto), echoAll())
	addrs := bind(t, server, wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	p := &caller{t: t, payload: make([]byte, 64), done: make(chan struct{}, 1)}
	for i := range depth {
		m := numbered(uint64(i), control.NewMessage(1, p.payload, nil))
		p.messages = append(p.messages, m)
		if start {
			p.requests = append(p.requests, &control.Request{Message: m, Done: func(r *control.Request, _ *control.Message, err error) {
				check(t, err)
				p.answered(r.Context.(int))
			}, Context: i})
		}
	}
	client := newMessenger(t, oneCore(t, "client.admin", uring.Auto))
	if err := client.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		p.answered(int(m.TID))
		return true
	}}); err != nil {
		t.Fatal(err)
	}
	p.conn = connect(t, client, addrs[0], wire.OSD)
	must(t, p.conn.WaitReady(t.Context()))
	return p
}

// run makes n requests.
func (p *caller) run(n int) {
	depth := min(n, len(p.messages))
	p.missing, p.left = n, n-depth
	for i := range depth {
		p.send(i)
	}
	<-p.done
}

func (p *caller) send(i int) {
	p.messages[i].Retain()
	var err error
	if p.requests != nil {
		err = p.conn.Start(p.requests[i])
	} else {
		err = p.conn.Send(p.messages[i])
	}
	check(p.t, err)
}

// answered runs on the core.
func (p *caller) answered(i int) {
	if p.missing--; p.missing == 0 {
		p.done <- struct{}{}
	} else if p.left > 0 {
		p.left--
		p.send(i)
	}
}
