package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// span stands for one of OpenTelemetry's: a part of a request, with the id of the whole
// request (trace) and its own.
type span struct {
	name              string
	trace, id, parent uint32
}

var (
	lastSpan atomic.Uint32
	finished = make(chan string, 10)
)

// startSpan begins a span below that of ctx, as a tracer's Start does.
func startSpan(ctx context.Context, name string) (context.Context, *span) {
	s := &span{name: name, id: lastSpan.Add(1)}
	s.trace = s.id
	if above, ok := ctx.Value(span{}).(*span); ok {
		s.trace, s.parent = above.trace, above.id
	}
	return context.WithValue(ctx, span{}, s), s
}

func (s *span) end(err error) {
	finished <- fmt.Sprintf("%s: trace %d, span %d below %d, error %v", s.name, s.trace, s.id, s.parent, err)
}

// tracing are the hooks of both sides. Middle has what a traceparent header has.
var tracing = control.RequestHooks{
	Call: func(ctx context.Context, _ *control.Conn, r *control.Request) func(*control.Message, error) {
		_, s := startSpan(ctx, "call")
		r.Message.Middle = fmt.Appendf(nil, "00-%032x-%016x-01", s.trace, s.id)
		return func(_ *control.Message, err error) { s.end(err) }
	},
	Replied: func(_ *control.Conn, requested any, err error) {
		if ctx, ok := requested.(context.Context); ok {
			ctx.Value(span{}).(*span).end(err)
		}
	},
}

// traced is the dispatcher in front of those that serve requests.
var traced = control.Dispatcher{Fast: func(_ *control.Conn, r *control.Message) bool {
	above := &span{}
	if n, _ := fmt.Sscanf(string(r.Middle), "00-%32x-%16x-01", &above.trace, &above.id); n == 2 {
		r.Context, _ = startSpan(context.WithValue(context.Background(), span{}, above), "serve")
	}
	return false
}}

// A request is followed across peers: its spans on both sides belong to one trace.
func ExampleRequestHooks() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Diagnostics: control.Diagnostics{Requests: &tracing}})
	try(err)
	try(server.Start(&traced, &control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		_ = c.Reply(r, control.NewMessage(r.Type, []byte("answer"), nil)) // r.Context is for what it calls itself
		return true
	}}))
	addrs, err := server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Diagnostics: control.Diagnostics{Requests: &tracing}})
	try(err)
	try(client.Start())
	conn, err := client.Connect(addrs[0], wire.OSD)
	try(err)
	within, whole := startSpan(ctx, "request")
	reply, err := conn.Call(within, control.NewMessage(1000, nil, nil))
	try(err)
	reply.Release()
	whole.end(nil)
	for range 3 {
		fmt.Println(<-finished)
	}
	try(client.Shutdown(ctx))
	try(server.Shutdown(ctx))
	// Unordered output:
	// serve: trace 1, span 3 below 2, error <nil>
	// call: trace 1, span 2 below 1, error <nil>
	// request: trace 1, span 1 below 0, error <nil>
}
