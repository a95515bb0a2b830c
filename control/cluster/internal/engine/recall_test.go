package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A write whose object a map takes from an OSD that hangs is answered by the next one. When it is over, the data is the caller's: the
// connection of the OSD that hangs does not read it any more.
func TestTheDataOfAWriteIsTheCallersAlthoughAnOSDThatHangsWasSentIt(t *testing.T) {
	incs, wholes := chain(t, 232)
	w := &world{cluster: cluster{t: t}, osds: map[string]wire.Addr{}}
	before, after, name := w.move(wholes)
	pool, _ := before.PoolID("rep")
	_, hangs := w.place(before, pool, name)
	_, serves := w.place(after, pool, name)

	stand, came := make(chan struct{}), make(chan struct{}, 8)
	const large = 24 << 20 // more than a socket takes
	goOn := sync.OnceFunc(func() { close(stand) })
	w.osds[hangs] = bind(t, messenger(t, wire.OSD, 1, &control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool {
		came <- struct{}{}
		<-stand // its core reads nothing
		return true
	}}))
	w.osds[serves] = bind(t, messenger(t, wire.OSD, 1, &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		if m.Type == osdop.TypeOp {
			_ = conn.Send(reply(m, 0, []byte("output")))
		}
		return true
	}}))
	t.Cleanup(goOn)
	w.e = New(w, Options{})
	var free atomic.Bool // of the first attempt of the large write
	made := w.e.attempts.New
	w.e.attempts.New = func() any {
		a := made().(*attempt)
		letGo := a.Free
		a.Free = func(m *control.Message) {
			if number := le.Uint32(m.Front[len(m.Front)-12:]); number == 0 && len(m.Data) > large {
				free.Store(true)
			}
			letGo(m)
		}
		return a
	}
	w.e.Open(messenger(t, wire.Client, 2, w.e.Dispatcher()))
	t.Cleanup(w.e.Close)
	w.take(before, nil, wholes[before.Epoch])

	over := make(chan struct{}, 2)
	start := func(size int) *Call {
		c := &Call{Done: func(*Call) { over <- struct{}{} }}
		c.Request = osdop.Request{Target: osdop.Object{Pool: pool, Name: name}, Flags: osdop.FlagWrite, Ops: []osdop.Op{osdop.Call("class", "method", make([]byte, size))}}
		check(t, w.e.Start(t.Context(), c))
		return c
	}
	first := start(1)
	<-came
	second := start(large)
	until(t, func() bool { return second.waits() == string(machine.WaitReply) })
	w.take(after, incs[after.Epoch], nil)
	<-over
	<-over
	if out := second.Request.Ops[0].Out; string(out) != "output" {
		t.Errorf("the output is %q", out)
	}
	second.Reply.Release()
	if first.Err != nil || second.Err != nil || !free.Load() {
		t.Errorf("%v, %v, and the OSD that hangs reads the data no more: %v", first.Err, second.Err, free.Load())
	}
	goOn()
}

// An OSD that has answered has all of the data, though the messenger may not have let go of it: its connection stays.
func TestAnAnswerDoesNotEndTheConnectionThatBringsIt(t *testing.T) {
	c := startWithMap(t, Options{})
	late := make(chan func(), 16)
	made := c.e.attempts.New
	c.e.attempts.New = func() any {
		a := made().(*attempt)
		letGo := a.Free
		a.Free = func(m *control.Message) { late <- func() { letGo(m) } }
		return a
	}
	var conns [2]uint64
	for i := range conns {
		r := c.read(0)
		r.Flags, r.Ops[0] = osdop.FlagWrite, osdop.Input(osdop.CodeAppend, []byte("data"))
		p, err := c.e.Do(t.Context(), r, r.Ops, nil)
		p.Release()
		check(t, err)
		for _, conn := range c.e.messenger.Conns() {
			conns[i] = conn.ID()
		}
	}
	if conns[0] != conns[1] {
		t.Errorf("another connection: %v", conns)
	}
	for range conns {
		(<-late)()
	}
}

// move finds two maps, one after the other, between which an object goes to another OSD, while both are up.
func (w *world) move(wholes map[uint32][]byte) (before, after *osdmap.Map, name string) {
	for epoch := uint32(30); wholes[epoch+1] != nil; epoch++ {
		var err [2]error
		before, err[0] = osdmap.Decode(wholes[epoch])
		after, err[1] = osdmap.Decode(wholes[epoch+1])
		if err != [2]error{} {
			w.t.Fatal(err)
		}
		pool, ok := before.PoolID("rep")
		for i := 0; ok && i < 200; i++ {
			name = fmt.Sprint(i)
			pg, from := w.place(before, pool, name)
			pg2, to := w.place(after, pool, name)
			osd := before.Place(&w.scratch, pg).Primary
			if addrs := after.Addrs(osd); from != "" && to != "" && from != to && pg == pg2 && len(addrs) > 0 && addrs[0].String() == from {
				return before, after, name
			}
		}
	}
	w.t.Fatal("no map moves an object")
	return nil, nil, ""
}
