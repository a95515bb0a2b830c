package machine

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// A watch is registered anew in each interval, with a higher generation; its pings confirm it, are not sent again unless the OSD
// has them come again, and one that fails is the end, said once.
func TestAWatchLastsOverIntervalsUntilTheOSDHasForgottenIt(t *testing.T) {
	r := newRig(t)
	w := &Watch{Object: osdop.Object{Pool: pool1, Name: "a"}, PingEvery: PollEvery}
	r.of(Nobody).Watch(w)
	r.take()
	r.up()
	serves := func(o *Op, kind uint8, gen uint32) {
		t.Helper()
		if got, k, g := o.Serves(); got != w || k != kind || g != gen {
			t.Errorf("kind %d, generation %d; want %d, %d", k, g, kind, gen)
		}
	}
	serves(&w.Reg, osdop.WatchBegin, 0)
	if a := find(r.reply(&w.Reg, osdop.Reply{}), Tell); a == nil || a.Err != nil || !w.Confirmed.Equal(time.Unix(0, 0)) || w.Cookie == 0 {
		t.Fatalf("it is not told that it is registered: %+v, confirmed at %v", a, w.Confirmed)
	}
	for gen := range uint32(2) { // the second one comes before the answer
		first := w.Reg.TID
		a := r.next(func(f *fakeMap) { // another replica: no reason to send operations again
			for pg := range f.acting {
				f.acting[pg] = []int32{0, 2 - int32(gen)}
			}
		})
		if find(a, Send) == nil || w.Reg.TID == first || r.m.First() != &w.Reg || w.Reg.Next() != nil {
			t.Fatalf("%+v in a new interval", a)
		}
		serves(&w.Reg, osdop.WatchReconnect, gen+1)
	}
	if a := r.reply(&w.Reg, osdop.Reply{}); len(a) != 0 {
		t.Errorf("%+v", a)
	}
	for r.n < 4 {
		r.tick()
	}
	if a := find(r.tick(), Send); a == nil || a.Op != &w.ping {
		t.Fatal("no ping")
	}
	serves(&w.ping, osdop.WatchPing, 2)
	if a := r.reply(&w.ping, osdop.Reply{Result: -int32(syscall.EAGAIN)}); find(a, Send) == nil || find(a, Tell) != nil {
		t.Errorf("%+v after EAGAIN to a ping", a)
	}
	r.tick()
	r.reply(&w.ping, osdop.Reply{})
	if !w.Confirmed.Equal(time.Unix(5, 0)) {
		t.Errorf("confirmed at %v", w.Confirmed)
	}
	for r.n < 10 {
		r.tick()
	}
	second := w.ping.TID
	if !w.ping.Active {
		t.Fatal("no second ping")
	}
	for r.n < 17 {
		r.tick()
	}
	if w.ping.TID != second {
		t.Error("another ping, before the answer")
	}
	r.m.Lost(w.session, errors.New("cut"))
	if w.ping.Active || !w.Reg.Active {
		t.Error("a ping survives its session, or the watch does not come back")
	}
	r.tick()
	r.up()
	all := r.reply(&w.Reg, osdop.Reply{Result: -int32(syscall.ENOENT)})
	if a := find(all, Tell); a == nil || !errors.Is(a.Err, syscall.ENOTCONN) || r.m.ops.first != nil || len(r.m.watches) > 0 {
		t.Errorf("%+v, want the end", all)
	}
}

// A watch goes along with its object, whether its registration is under way or not, and waits where nobody serves that.
func TestAWatchGoesWhereItsObjectGoes(t *testing.T) {
	r := newRig(t)
	w := &Watch{Object: write(pool1).Object}
	r.of(Nobody).Watch(w)
	r.take()
	for i, c := range []struct {
		acting []int32
		answer bool // comes before
	}{{[]int32{0, 1}, false}, {[]int32{1, 0}, true}, {[]int32{0, 1}, false}, {nil, true}, {[]int32{2, 1}, false}, {nil, false}, {[]int32{1, 2}, false}} {
		if c.answer {
			r.reply(&w.Reg, osdop.Reply{})
		}
		r.next(func(f *fakeMap) {
			for pg := range f.acting {
				f.acting[pg] = c.acting
			}
		})
		r.up()
		home := int32(Nobody)
		if len(c.acting) > 0 {
			home = c.acting[0]
		}
		for _, m := range r.all {
			if want := map[bool]int{true: 1}[m.osd == home]; len(m.watches) != want || m.First() != nil && m.osd != home {
				t.Errorf("step %d: osd.%d has %d watches", i, m.osd, len(m.watches))
			}
		}
		if w.Reg.sent != (home != Nobody) || home != Nobody && w.session.OSD != home {
			t.Errorf("step %d: sent %v, %+v", i, w.Reg.sent, w.session)
		}
	}
	r.reply(&w.Reg, osdop.Reply{})
	for !w.ping.Active && r.n < 60 {
		r.tick()
	}
	m := r.of(1)
	m.departWatch(w, 2)
	m.Forget(w) // on the way
	if r.exchange(); m.First() != nil || len(r.of(2).watches) > 0 {
		t.Error("it arrives though it is over, or leaves a ping behind")
	}
}

// A watch that is lost says so once: as the OSD has forgotten it, with the one error that means this, or as its pool is gone. An event
// counts on the session of the watch alone.
func TestAWatchThatIsLostSaysWhy(t *testing.T) {
	forget := func(errno syscall.Errno) func(r *rig, w *Watch) []Action {
		return func(r *rig, w *Watch) []Action { return r.reply(&w.Reg, osdop.Reply{Result: -int32(errno)}) }
	}
	for name, c := range map[string]struct {
		lose func(r *rig, w *Watch) []Action
		want error
	}{
		"timeout":   {forget(syscall.ETIMEDOUT), syscall.ENOTCONN},
		"no object": {forget(syscall.ENOENT), syscall.ENOTCONN},
		"forgotten": {forget(syscall.ENOTCONN), syscall.ENOTCONN},
		"blocklist": {forget(syscall.ESHUTDOWN), syscall.ESHUTDOWN},
		"pool":      {func(r *rig, _ *Watch) []Action { return r.next(func(f *fakeMap) { delete(f.pools, pool1) }) }, syscall.ENOENT},
		"pool of an idle one": {func(r *rig, w *Watch) []Action {
			r.reply(&w.Reg, osdop.Reply{})
			return r.next(func(f *fakeMap) { delete(f.pools, pool1) })
		}, syscall.ENOENT},
	} {
		r := newRig(t)
		w := &Watch{Object: write(pool1).Object}
		r.of(Nobody).Watch(w)
		r.take()
		r.up()
		r.reply(&w.Reg, osdop.Reply{})
		if r.m.Lookup(w.session, w.Cookie, false) != w || r.m.Lookup(&Session{}, w.Cookie, false) != nil || r.m.Lookup(w.session, w.Cookie, true) != nil {
			t.Errorf("%s: an event finds the wrong watch", name)
		}
		first := w.Reg.TID
		r.f = r.f.clone()
		if r.maps(true, r.f); find(r.take(), Send) == nil || w.Reg.TID == first {
			t.Errorf("%s: it is not registered again where maps are missing", name)
		}
		all := c.lose(r, w)
		if a := find(all, Tell); a == nil || a.Err != c.want || len(all) != 1 || len(r.m.watches) > 0 {
			t.Errorf("%s: %+v, want the end with %v", name, all, c.want)
		}
	}
}

// While the cluster is full an OSD still takes what concerns watches: without pings, as often as the timeout of the watch wants them, it
// would forget it. A write on the object that waits does not hold them up, nor does a pause of writes. Where all is paused nothing is sent, as
// stock clients have it.
func TestAWatchIsConfirmedWhileTheClusterIsFull(t *testing.T) {
	r := newRig(t)
	w := &Watch{Object: write(pool1).Object, PingEvery: 2 * time.Second}
	r.of(Nobody).Watch(w)
	r.take()
	r.up()
	r.reply(&w.Reg, osdop.Reply{})
	r.next(func(f *fakeMap) { f.flags = osdmap.Full })
	another, waits := &Watch{Object: w.Object, Notify: true}, write(pool1)
	if a := r.submit(waits); len(a) != 0 {
		t.Fatalf("%+v: a write is sent", a)
	}
	r.of(Nobody).Watch(another)
	if a := find(r.take(), Send); a == nil || a.Op != &another.Reg {
		t.Error("a notify is not sent")
	}
	r.reply(&another.Reg, osdop.Reply{}) // its completion may come late
	pings := func() (n int) {
		for range 10 {
			for _, a := range r.tick() {
				if a.What == Send {
					n++
					r.reply(a.Op, osdop.Reply{})
				}
			}
		}
		return n
	}
	if n := pings(); n != 5 {
		t.Errorf("%d pings in 10 s", n)
	}
	r.next(func(f *fakeMap) { f.flags = osdmap.PauseReads | osdmap.PauseWrites })
	if n := pings(); n != 0 || w.ping.Active {
		t.Errorf("%d pings in the pause, and one behind it: %v", n, w.ping.Active)
	}
	r.next(func(f *fakeMap) { f.flags = 0 })
	r.reply(waits, osdop.Reply{})
	r.next(func(f *fakeMap) { f.flags = osdmap.PauseWrites })
	if waits = write(pool1); len(r.submit(waits)) != 0 {
		t.Fatal("a write is sent")
	}
	if n := pings(); n != 5 {
		t.Errorf("%d pings in 10 s in which writes are paused", n)
	}
	r.next(func(f *fakeMap) { f.flags = 0 })
	r.reply(waits, osdop.Reply{})
	for !w.ping.Active && r.n < 60 {
		r.tick()
	}
	r.next(func(f *fakeMap) { f.flags = osdmap.PauseWrites })
	a := r.submit(&Op{Object: write(pool1).Object, Flags: osdop.FlagRead})
	if !w.ping.sent || find(a, Send) == nil {
		t.Errorf("%+v: a read waits behind a ping, which is under way: %v", a, w.ping.sent)
	}
}
