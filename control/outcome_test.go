package control_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
)

// followed notes what hooks are told.
type followed struct{ journal }

type nameKey struct{}

// calls notes calls by the name in their context, and sends that along.
func (f *followed) calls() *control.RequestHooks {
	return &control.RequestHooks{Call: func(ctx context.Context, _ *control.Conn, r *control.Request) func(*control.Message, error) {
		name, _ := ctx.Value(nameKey{}).(string)
		if name == "" {
			name, _ = r.Context.(string)
		}
		r.Message.Middle = []byte(name)
		f.add("call %s", name)
		return func(reply *control.Message, err error) {
			if reply != nil {
				f.add("%s: %s", name, reply.Front)
				return
			}
			f.add("%s: %v", name, err)
		}
	}}
}

// replies notes replies by the name that came with the request.
func (f *followed) replies() *control.RequestHooks {
	return &control.RequestHooks{Replied: func(_ *control.Conn, requested any, err error) { f.add("replied %v %v", requested, err) }}
}

// named is a dispatcher in front, which takes the name of a request from the message.
func named() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		m.Context = string(m.Middle)
		return false
	}}
}

func TestHooksFollowARequestToItsReplyOnBothSides(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var asked, asking followed
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(named(), &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			answer := control.NewMessage(m.Type, bytes.Clone(m.Front), nil)
			if m.Type == 1 {
				_ = c.Reply(m, answer)
				return true
			}
			due := c.Later(m)
			go func() { _ = due.Send(answer) }()
			return true
		}}), func(c *nodetest.NodeConfig) { c.Diagnostics.Requests = asked.replies() })
		client := nodeOf(t, v, "client.2", "LLC", 2, func(c *nodetest.NodeConfig) { c.Diagnostics.Requests = asking.calls() })
		conn := client.Dial(server)
		for typ := range uint16(2) {
			reply, err := conn.Call(context.WithValue(ctx, nameKey{}, "one"), control.NewMessage(1+typ, []byte("text"), nil))
			must(t, err)
			reply.Release()
			asking.check(t, ctx, "call one", "one: text")
			asked.check(t, ctx, "replied one <nil>")
		}
		done := make(chan struct{})
		r := &control.Request{Context: "two", Message: control.NewMessage(1, []byte("text"), nil), Done: func(*control.Request, *control.Message, error) {
			asking.add("done")
			close(done)
		}}
		must(t, conn.Start(r))
		<-done
		asking.check(t, ctx, "call two", "two: text", "done")
		asked.check(t, ctx, "replied two <nil>")
	})
}

func TestHooksLearnOfCallsThatFail(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var asking followed
		came := make(chan control.PendingReply, 1)
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			came <- c.Later(m)
			return true
		}}))
		client := nodeOf(t, v, "client.2", "LLC", 2, func(c *nodetest.NodeConfig) { c.Diagnostics.Requests = asking.calls() })
		conn := client.Dial(server)

		// The caller goes away.
		gone, cancel := context.WithCancelCause(context.WithValue(ctx, nameKey{}, "one"))
		reason := errors.New("no more interest")
		go func() { <-came; cancel(reason) }()
		if _, err := conn.Call(gone, control.NewMessage(1, nil, nil)); !errors.Is(err, reason) {
			t.Fatal(err)
		}
		asking.check(t, ctx, "call one", "one: no more interest")

		// The session ends.
		done := make(chan struct{})
		r := &control.Request{Context: "two", Message: control.NewMessage(1, nil, nil), Done: func(*control.Request, *control.Message, error) { close(done) }}
		must(t, conn.Start(r))
		conn.MarkDown()
		<-done
		if got := asking.take(t, ctx, 2); len(got) != 2 || got[1] == "two: <nil>" {
			t.Errorf("%q", got)
		}

		// It cannot begin.
		r.Context = "three"
		<-conn.Closed()
		if err := conn.Start(r); !errors.Is(err, control.ErrClosed) {
			t.Fatal(err)
		}
		asking.check(t, ctx, "call three", "three: "+control.ErrClosed.Error())
		_, err := conn.Call(context.WithValue(ctx, nameKey{}, "four"), control.NewMessage(1, nil, nil))
		if !errors.Is(err, control.ErrClosed) {
			t.Fatal(err)
		}
		asking.check(t, ctx, "call four", "four: "+err.Error())
	})
}
