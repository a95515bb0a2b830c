package machine

import (
	"errors"
	"slices"
	"time"
)

// fleet are the machines of a client: that of Nobody, and those of the OSDs.
type fleet struct {
	ids IDs
	all [osds + 1]*Machine
	cur Map
}

func newFleet(now time.Time) *fleet {
	f := &fleet{}
	for i := range f.all {
		f.all[i] = New(int32(i-1), &f.ids, nil, now)
	}
	return f
}

func (f *fleet) of(osd int32) *Machine { return f.all[osd+1] }

// exchange has machines adopt what leaves others.
func (f *fleet) exchange() {
	for _, m := range f.all {
		f.bring(m)
	}
}

func (f *fleet) bring(m *Machine) {
	for o := m.Leaving(); o != nil; o = m.Leaving() {
		f.of(o.Home()).Adopt(o)
	}
}

// maps gives all machines maps.
func (f *fleet) maps(skipped bool, next ...*fakeMap) {
	for _, n := range next {
		f.cur = n
		for _, m := range f.all {
			m.Map(n, skipped)
		}
		f.exchange()
	}
	for _, m := range f.all {
		m.Settle()
	}
}

// sessions are those that there are.
func (f *fleet) sessions() (list []*Session) {
	for _, m := range f.all {
		if m.session != nil {
			list = append(list, m.session)
		}
	}
	return list
}

// coming is an operation that a goroutine has placed and is about to hand to a machine.
type coming struct {
	o   *Op
	to  int32
	cur Map
}

// tell gives maps to the client, one epoch after the other, or skips some. The machines first take what was handed to them by the
// map before.
func (c *cluster) tell() {
	if c.told == len(c.maps) {
		return
	}
	for i := range c.queues {
		c.drain(int32(i - 1))
	}
	c.f.exchange()
	c.act()
	if c.rng.IntN(10) == 0 && c.told+1 < len(c.maps) {
		c.f.maps(c.told > 0, c.newest())
		c.told = len(c.maps)
	} else {
		n := 1 + c.rng.IntN(len(c.maps)-c.told)
		c.f.maps(false, c.maps[c.told:c.told+n]...)
		c.told += n
	}
}

// start has the goroutine of an object begin an operation.
func (c *cluster) start(o *Op) {
	name := o.Object.Name
	c.hand(name)
	c.seq[o] = len(c.ops)
	c.ops[o], c.begun[name] = name, append(c.begun[name], o)
	c.coming[name] = &coming{o, Aim(c.f.cur, o), c.f.cur}
}

// hand puts the operation into the queue of its machine. If the map is another one by then, it is seen there, and at once brought to
// where it belongs.
func (c *cluster) hand(name string) {
	k := c.coming[name]
	if k == nil {
		return
	}
	delete(c.coming, name)
	c.queues[k.to+1] = append(c.queues[k.to+1], k.o)
	if c.f.cur != k.cur {
		c.drain(k.to)
		c.f.bring(c.f.of(k.to))
	}
}

// drain has a machine take what was handed to it.
func (c *cluster) drain(osd int32) {
	for _, o := range c.queues[osd+1] {
		c.f.of(osd).Submit(o)
	}
	c.queues[osd+1] = nil
}

// hasten goes on with what goroutines and machines have begun.
func (c *cluster) hasten() {
	switch i := c.rng.IntN(len(c.queues)); c.rng.IntN(3) {
	case 0:
		c.hand(string(rune('a' + c.rng.IntN(6))))
	case 1:
		c.drain(int32(i - 1))
	default:
		c.f.bring(c.f.all[i])
	}
	c.act()
}

var errCanceled = errors.New("canceled")

func (c *cluster) over(o *Op) bool { _, over := c.done[o]; return over }

// cancel ends an operation wherever it is: on its way to a machine, held, sent, or on its way to another machine.
func (c *cluster) cancel() {
	all := c.begun[string(rune('a'+c.rng.IntN(6)))]
	if len(all) == 0 {
		return
	}
	o := all[c.rng.IntN(len(all))]
	if k := c.coming[o.Object.Name]; k != nil && k.o == o || c.over(o) {
		return
	}
	for i, m := range c.f.all {
		c.queues[i] = slices.DeleteFunc(c.queues[i], func(q *Op) bool { return q == o })
		here := m.byTID[o.TID] == o
		for l := m.leaving.First(); l != nil; l = l.Next() {
			here = here || l == o
		}
		if here {
			m.Cancel(o)
			after := len(m.actions)
			if m.flush(); len(m.actions) > after {
				c.failf("operations waited on behind %d", o.TID)
			}
		}
	}
	if o.Active {
		c.failf("operation %d is not canceled", o.TID)
	}
	c.done[o] = errCanceled
}
