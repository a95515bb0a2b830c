package machine

import (
	"cmp"
	"errors"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// rig are machines with a map of one pool and two OSDs, osd.0 serving all groups.
type rig struct {
	t *testing.T
	*fleet
	m *Machine // of osd.0
	f *fakeMap
	n int64 // seconds
}

func newRig(t *testing.T) *rig {
	c := newCluster(t, 1)
	f := c.newest()
	for pg := range f.acting {
		f.acting[pg] = []int32{0, 1}
	}
	r := &rig{t: t, fleet: newFleet(time.Unix(0, 0)), f: f}
	r.m = r.of(0)
	r.maps(false, f)
	return r
}

// next gives the machine the next map.
func (r *rig) next(change func(f *fakeMap)) []Action {
	r.f = r.f.clone()
	change(r.f)
	r.maps(false, r.f)
	return r.take()
}

func (r *rig) take() (all []Action) {
	r.exchange()
	for _, m := range r.all {
		all = append(all, m.Take()...)
	}
	return all
}

func (r *rig) submit(o *Op) []Action {
	r.of(Aim(r.cur, o)).Submit(o)
	return r.take()
}

// up has all sessions connected.
func (r *rig) up() []Action {
	for _, s := range r.sessions() {
		r.of(s.OSD).Up(s)
	}
	return r.take()
}

func (r *rig) tick() []Action {
	r.n++
	for _, m := range r.all {
		m.Tick(time.Unix(r.n, 0))
	}
	return r.take()
}

func (r *rig) reply(o *Op, p osdop.Reply) []Action {
	r.of(o.Session.OSD).Reply(o, &p)
	return r.take()
}

func find(all []Action, w What) *Action {
	for i := range all {
		if all[i].What == w {
			return &all[i]
		}
	}
	return nil
}

// ended checks that an operation has ended with err, and with nothing else.
func (r *rig) ended(all []Action, o *Op, err error) {
	r.t.Helper()
	a := find(all, Finish)
	if a == nil || a.Op != o || !errors.Is(a.Err, err) || o.Active {
		r.t.Errorf("%+v, want the end with %v", all, err)
	}
}

// newSent is a rig whose osd.0 has been sent a write.
func newSent(t *testing.T) (*rig, *Op) {
	r, o := newRig(t), write(pool1)
	r.submit(o)
	r.up()
	return r, o
}

func write(pool int64) *Op {
	return &Op{Object: osdop.Object{Pool: pool, Name: "a"}, Flags: osdop.FlagWrite}
}

func TestAPoolThatNoMapHasIsAskedForAndAPoolThatIsDeletedEndsItsOperations(t *testing.T) {
	r := newRig(t)
	o, late, last := write(7), write(7), write(7)
	if a := r.submit(o); find(a, Newest) == nil || len(a) != 1 {
		t.Fatalf("%+v, want a question", a)
	}
	if a := append(r.submit(late), r.submit(last)...); len(a) != 0 {
		t.Errorf("%+v, want one question at a time", a)
	}
	r.of(Nobody).Newest(r.f.epoch)
	all := r.take()
	r.ended(all, o, syscall.ENOENT)
	if find(all, Newest) == nil || !late.Active || late.wait != WaitPool {
		t.Errorf("%+v: an answer ended a question that was asked later; it waits for %q", all, late.wait)
	}
	r.of(Nobody).Newest(r.f.epoch + 1)
	if a := r.take(); len(a) != 1 || a[0].What != Ask || a[0].Epoch != r.f.epoch+1 || !late.Active || last.check != late.check {
		t.Errorf("%+v, want maps, and one answer for all that came before the question", a)
	}
	r.of(Nobody).Cancel(last)
	a := r.next(func(f *fakeMap) {
		f.pools[7] = f.pools[pool1]
		for seed := range uint32(4) {
			f.acting[osdmap.PG{Pool: 7, Seed: seed}] = []int32{0}
		}
	})
	if find(a, Dial) == nil {
		t.Errorf("%+v, want a connection", a)
	}
	r.up()
	if a := r.reply(late, osdop.Reply{Redirect: &osdop.Object{Pool: 8}}); len(a) != 1 || a[0].What != Newest {
		t.Errorf("%+v of another pool that no map has", a)
	}
	r.of(Nobody).Newest(r.f.epoch)
	r.ended(r.take(), late, syscall.ENOENT)
	r.submit(late)
	r.ended(r.next(func(f *fakeMap) { delete(f.pools, 7) }), late, syscall.ENOENT)
	if find(r.submit(o), Newest) == nil {
		t.Error("an operation that is used again does not ask again")
	}
}

func TestAPoolOfErrorsFailsAtOnce(t *testing.T) {
	r, o := newSent(t)
	r.ended(r.next(func(f *fakeMap) { p := f.pools[pool1]; p.Flags |= osdmap.PoolEIO; f.pools[pool1] = p }), o, syscall.EIO)
}

func TestOnlyTheAnswerToTheLastAttemptOnItsSessionCounts(t *testing.T) {
	r, o := newSent(t)
	s := o.Session
	if r.m.Find(s, o.TID) != o || r.m.Find(&Session{OSD: 1}, o.TID) != nil || r.m.Find(s, o.TID+1) != nil {
		t.Error("an answer finds the wrong operation")
	}
	r.m.Lost(s, errors.New("cut")) // of time 0: it rests until the next tick
	if r.m.Find(s, o.TID) != o {
		t.Error("an answer that is there already counts while the operation is not sent again")
	}
	dialled := func(when string, want bool, all []Action) {
		t.Helper()
		if a := find(all, Dial); (a != nil) != want || want && a.Session != s {
			t.Errorf("%s: %+v", when, all)
		}
	}
	dialled("after a brief session", false, r.take())
	dialled("at the tick", true, r.tick())
	dialled("while that is under way", false, r.tick())
	if a := find(r.up(), Send); a == nil || a.Op != o || o.Attempt != 1 {
		t.Error("it is not sent again")
	}
	if e := r.m.Envelope(o); e.Flags&osdop.Retry == 0 || e.Attempt != 1 {
		t.Errorf("%+v", e)
	}
	if a := r.reply(o, osdop.Reply{Attempt: 0}); len(a) > 0 || !o.Active {
		t.Errorf("%+v for an earlier attempt", a)
	}
	r.ended(r.reply(o, osdop.Reply{Attempt: 1, Result: -int32(syscall.ENOENT)}), o, syscall.ENOENT)
	for range restlessness / time.Second {
		r.tick()
	}
	r.m.Lost(s, errors.New("cut"))
	dialled("after a long session", true, r.take())
	r.m.Lost(s, errors.New("cut"))
	dialled("after one that did not come up", false, r.take())
	r.submit(o)
	if find(r.tick(), Dial) == nil || find(r.up(), Send) == nil {
		t.Error("an operation that is used again is not sent")
	}
}

func TestARedirectGoesElsewhereAsAnotherOperationAndNotForEver(t *testing.T) {
	r, o := newSent(t)
	tid := o.TID
	a := r.reply(o, osdop.Reply{Redirect: &osdop.Object{Pool: pool1, Namespace: "n"}})
	e := r.m.Envelope(o)
	const flags = osdop.FlagWrite | osdop.Redirected | osdop.IgnoreCache | osdop.IgnoreOverlay
	if find(a, Send) == nil || o.TID == tid || e.Target.Name != "a" || e.Target.Namespace != "n" || e.Flags != flags || e.Attempt != 0 {
		t.Fatalf("%+v, %+v", a, e)
	}
	for range 100 {
		if !o.Active {
			break
		}
		r.tick() // from some number on it waits for that
		a = r.reply(o, osdop.Reply{Redirect: &osdop.Object{Pool: pool1}})
	}
	r.ended(a, o, syscall.ELOOP)
	if r.submit(o); find(r.reply(o, osdop.Reply{Redirect: &osdop.Object{Pool: pool1}}), Send) == nil {
		t.Error("one that is used again has its redirects left")
	}
	if find(r.reply(o, osdop.Reply{Redirect: &osdop.Object{Pool: 7}}), Newest) == nil || r.m.First() != nil {
		t.Error("a pool that no map has is not asked for")
	}
}

// A replica that cannot answer says EAGAIN: then the primary is asked, as for writes, and in a pool whose OSDs have parts of the object.
func TestAReadThatAReplicaRefusesGoesToThePrimary(t *testing.T) {
	for _, c := range []struct {
		kind  uint8
		flags uint32
		osd   int32
	}{{osdmap.PoolReplicated, osdop.FlagRead, 1}, {osdmap.PoolReplicated, osdop.FlagWrite, 0}, {3, osdop.FlagRead, 0}} {
		r := newRig(t)
		r.next(func(f *fakeMap) {
			p := f.pools[pool1]
			p.Kind, f.near = c.kind, map[int32]int32{0: 1}
			f.pools[pool1] = p
		})
		o := &Op{Object: write(pool1).Object, Flags: c.flags | osdop.BalanceReads, Pick: 1}
		r.submit(o)
		r.up()
		if o.Session.OSD != c.osd {
			t.Fatalf("%+v: it goes to osd.%d", c, o.Session.OSD)
		}
		r.reply(o, osdop.Reply{Result: -int32(syscall.EAGAIN)})
		if r.up(); o.Session.OSD != 0 || !o.sent {
			t.Errorf("%+v: it goes to osd.%d then", c, o.Session.OSD)
		}
	}
}

// Reads and writes go to the caches of the pool that they name, unless they ignore them. An OSD drops what has no room there, and all
// where the cache is to fail.
func TestACacheTierGetsTheOperationsOfItsPool(t *testing.T) {
	r := newRig(t)
	r.next(func(f *fakeMap) {
		p := f.pools[pool1]
		p.Flags = osdmap.PoolEIO
		f.pools[2] = p
		p.Flags = osdmap.PoolFull
		f.pools[3] = p
		p.Flags, p.ReadTier, p.WriteTier = 0, 2, 3
		f.pools[pool1] = p
	})
	for flags, pool := range map[uint32]int64{
		osdop.FlagRead: 2, osdop.FlagWrite: 3, osdop.FlagRead | osdop.FlagWrite: 3, osdop.FlagRead | osdop.IgnoreOverlay: pool1,
	} {
		o := write(pool1)
		o.Flags = flags
		if Aim(r.cur, o); o.at.object.Pool != pool || o.at.PG.Pool != pool || o.at.full[1] != (pool == 3) || o.Object.Pool != pool1 {
			t.Errorf("flags %#x: %+v", flags, o.at)
		}
		if a := find(r.submit(o), Finish); (a != nil) != (pool == 2) || o.wait == WaitPoolFull {
			t.Errorf("flags %#x: %+v", flags, a)
		}
	}
}

// Operations are sent again where their group, its primary or the place of that is another one; reads from replicas are in each new
// interval, and watches are registered.
func TestWhatMovesAnOperationAndWhatBeginsAnInterval(t *testing.T) {
	base := target{exists: true, groups: 8, osd: 1, Place: Place{PG: osdmap.PG{Pool: 1, Seed: 1}, Primary: 1, UpPrimary: 1}}
	sets := func(acting, up []int32) func(t *target) {
		return func(t *target) { t.Sets(acting, up, 0, nil) }
	}
	old, other := []int32{1, 2}, []int32{1, 3}
	sets(old, old)(&base)
	for name, c := range map[string]struct {
		change        func(t *target)
		moves, begins bool
	}{
		"nothing":            {func(*target) {}, false, false},
		"the pool's flags":   {func(t *target) { t.pool = osdmap.PoolFull }, false, false},
		"group":              {func(t *target) { t.PG.Seed = 2 }, true, true},
		"OSD":                {func(t *target) { t.osd = 2 }, true, true},
		"primary":            {func(t *target) { t.Primary = 2 }, true, true},
		"its index":          {sets([]int32{2, 1}, old), true, true},
		"its shard":          {func(t *target) { t.Shard = 1 }, true, true},
		"nobody serves it":   {sets(nil, old), true, true},
		"forced":             {func(t *target) { t.forced = 9 }, true, true},
		"it splits":          {func(t *target) { t.groups = 16 }, true, true},
		"another one splits": {func(t *target) { t.groups = 9 }, false, false},
		"it gets another":    {func(t *target) { t.groups = 4 }, true, true},
		"others merge":       {func(t *target) { t.groups = 7 }, false, false},
		"replicas":           {sets(other, old), false, true},
		"to a replica":       {func(t *target) { t.replica = true }, false, false},
		"its replica":        {func(t *target) { sets(other, old)(t); t.replica = true }, true, true},
		"a replica's OSDs":   {func(t *target) { sets(old, other)(t); t.replica = true }, true, true},
		"OSDs to be":         {sets(old, other), false, true},
		"their primary":      {func(t *target) { t.UpPrimary = 2 }, false, true},
		"size":               {func(t *target) { t.peering.Size = 2 }, false, true},
		"flags of the map":   {func(t *target) { t.flags = 1 << 15 }, false, true},
	} {
		next := base
		c.change(&next)
		if moves, begins := base.moves(&next), base.begins(&next); moves != c.moves || begins != c.begins {
			t.Errorf("%s: moves %v, begins an interval %v; want %v, %v", name, moves, begins, c.moves, c.begins)
		}
	}
}

// An OSD that always answers EAGAIN gets a few requests a second, not as many as it can answer.
func TestAnOSDThatHasRequestsComeAgainGetsThemByTheTick(t *testing.T) {
	r, o := newSent(t)
	sends := 0
	for range 100 {
		if find(r.reply(o, osdop.Reply{Result: -int32(syscall.EAGAIN)}), Send) == nil {
			break
		}
		sends++
	}
	if w, _, _ := o.Status(); sends > 10 || w != WaitLater {
		t.Errorf("%d sends, waits for %q", sends, w)
	}
	if find(r.tick(), Send) == nil {
		t.Error("it does not go on")
	}
	for range maxBounced {
		r.reply(o, osdop.Reply{Result: -int32(syscall.EAGAIN)})
		r.tick()
	}
	r.ended(r.reply(o, osdop.Reply{}), o, nil)
}

// It is not another attempt.
func TestAnOperationThatFindsTheQueueFullIsSentWhenThereIsRoom(t *testing.T) {
	r, o := newSent(t)
	if r.m.Stalled(o); o.wait != WaitQueue || o.Attempt != -1 {
		t.Errorf("it waits for %q, attempt %d", o.wait, o.Attempt)
	}
	if r.m.Room(o.Session); find(r.take(), Send) == nil || o.Attempt != 0 {
		t.Errorf("attempt %d", o.Attempt)
	}
}

// Somebody may have missed a map, or that a connection is dead: both are looked after where something waits, and else cost nothing.
func TestMapsAndConnectionsAreLookedAfterWhereSomethingWaits(t *testing.T) {
	for name, c := range map[string]struct {
		begin     func(r *rig)
		ask, ping int64 // the second of the first; 0: there is none
	}{
		"nothing waits":          {func(*rig) {}, 0, 0},
		"an answer":              {func(r *rig) { r.submit(write(pool1)) }, 10, 10},
		"the end of a pause":     {func(r *rig) { r.next(func(f *fakeMap) { f.flags = osdmap.PauseWrites }); r.submit(write(pool1)) }, 5, 10},
		"a session that is lost": {func(r *rig) { r.m.Lost(r.m.session, errors.New("cut")) }, 5, 0},
		"a watch":                {func(r *rig) { r.of(Nobody).Watch(&Watch{Object: write(pool1).Object}); r.take() }, 5, 5},
	} {
		r, o := newSent(t)
		r.reply(o, osdop.Reply{})
		c.begin(r)
		var ask, ping, asks int64
		for r.n < 14 {
			all := r.tick()
			if a := find(all, Ask); a != nil {
				if asks++; asks > 2 || a.Epoch != r.f.epoch+1 {
					t.Errorf("%s: %d questions, the last for maps from %d on", name, asks, a.Epoch)
				}
				ask = cmp.Or(ask, r.n)
			}
			if find(all, Ping) != nil && ping == 0 {
				ping = r.n
			}
		}
		if ask != c.ask || ping != c.ping {
			t.Errorf("%s: maps are asked for after %d s, the connection after %d; want %d and %d", name, ask, ping, c.ask, c.ping)
		}
	}
}

// Refusals count in a row: a session that came up between them counts anew.
func TestAnOSDThatLetsNobodyInFailsItsOperationsInTheEnd(t *testing.T) {
	r, o := newSent(t)
	wrong := errors.New("wrong key")
	for range maxBounced {
		r.m.Refused(o.Session, wrong)
		if a := r.take(); find(a, Finish) != nil {
			t.Fatalf("%+v", a)
		}
		r.up()
	}
	for range 10 {
		r.m.Refused(o.Session, wrong)
		if a := r.take(); find(a, Finish) != nil {
			r.ended(a, o, wrong)
			return
		}
		if find(r.tick(), Dial) == nil {
			t.Error("it is not dialled again")
		}
	}
	t.Error("it waits on")
}

// A group can have a primary that is down, by an exception of the map. Nobody serves it.
func TestAnOSDThatIsDownGetsNothing(t *testing.T) {
	r, o := newSent(t)
	if a := r.next(func(f *fakeMap) { delete(f.addrs, 0) }); find(a, HangUp) == nil {
		t.Errorf("%+v: the connection stays", a)
	}
	if w, _, osd := o.Status(); w != WaitPrimary || osd != Nobody || r.of(Nobody).First() != o {
		t.Errorf("it waits for %q on osd.%d", w, osd)
	}
}

// A map can want everything to be sent again, and one behind a gap does, as nobody knows what was in between: each once.
func TestEverythingIsSentAgainWhereAMapWantsItOrOthersAreMissing(t *testing.T) {
	r, o := newSent(t)
	again := func(what string, want bool, a []Action) {
		t.Helper()
		if s := find(a, Send); (s != nil) != want || s != nil && s.Op != o {
			t.Errorf("%s: %+v", what, a)
		}
	}
	again("another map", false, r.next(func(*fakeMap) {}))
	again("forced", true, r.next(func(f *fakeMap) { p := f.pools[pool1]; p.Resend = f.epoch; f.pools[pool1] = p }))
	again("the map behind it", false, r.next(func(*fakeMap) {}))
	r.f = r.f.clone()
	r.maps(true, r.f)
	again("a gap", true, r.take())
}

// A back-off holds the objects of its group from its begin on and before its end, or its begin alone, until it is taken back or the
// session is another one.
func TestABackoffHoldsItsRangeAndNoMore(t *testing.T) {
	r, o := newSent(t)
	at, shard := o.at.object.HObject(o.at.Hash), o.at
	before, behind := at, at
	before.Snap--
	behind.Name += "a"
	shard.Shard = 1
	group := o.at
	group.PG.Seed++
	for _, c := range []struct {
		of         target
		begin, end osdop.HObject
		holds      bool
	}{
		{o.at, osdop.Min(), osdop.HObject{Max: true}, true}, {o.at, at, at, true}, {o.at, at, behind, true}, {o.at, before, behind, true},
		{o.at, before, at, false}, {o.at, behind, osdop.HObject{Max: true}, false}, {o.at, before, before, false},
		{shard, osdop.Min(), osdop.HObject{Max: true}, false}, {group, osdop.Min(), osdop.HObject{Max: true}, false},
	} {
		b := &osdop.Backoff{PG: c.of.PG, Shard: c.of.Shard, What: osdop.Block, ID: 7, Begin: c.begin, End: c.end}
		if err := r.m.Backoff(o.Session, b); err != nil {
			t.Fatal(err)
		}
		all := r.take()
		ack := find(all, Ack)
		if w, _, _ := o.Status(); ack == nil || ack.Backoff.What != osdop.AckBlock || ack.Backoff.ID != 7 || ack.Backoff.Epoch != r.f.epoch || len(all) != 1 || (w == WaitBackoff) != c.holds {
			t.Errorf("%+v from %+v to %+v: it waits for %q; %+v, answer %+v", c.of.PG, c.begin, c.end, w, all, ack)
		}
		free := *b
		free.What = osdop.Unblock
		if _ = r.m.Backoff(o.Session, &free); (find(r.take(), Send) != nil) != c.holds {
			t.Errorf("%+v to %+v: sent again when it is taken back: %v", c.begin, c.end, !c.holds)
		}
	}
}

func TestAnOSDThatRefusesTooMuchLosesItsSession(t *testing.T) {
	r, o := newSent(t)
	for id := range uint64(maxBackoffs + 1) {
		if err := r.m.Backoff(o.Session, &osdop.Backoff{What: osdop.Block, ID: id}); err != nil {
			return
		}
	}
	t.Error("no bound")
}

// An operation may be used again. What it waited for the last time is not told where it leaves a machine that it was handed to by an
// older map.
func TestAnOperationThatIsUsedAgainHasNothingOfItsLastUse(t *testing.T) {
	r, o := newRig(t), write(pool1)
	r.submit(o)
	if w, _, _ := o.Status(); w != WaitSession {
		t.Fatalf("it waits for %q", w)
	}
	r.m.Cancel(o)
	Aim(r.cur, o)
	r.of(1).Submit(o)
	r.of(1).Cancel(&Op{}) // which is over
	if w, _, osd := o.Status(); w != WaitNothing || osd != Nobody || !r.of(1).Moves() {
		t.Errorf("it waits for %q on osd.%d", w, osd)
	}
}

// Operations that are over are not kept by their machine, nor is the memory that many of them took.
func TestNothingStaysOfABurstOfOperations(t *testing.T) {
	r, kept := newRig(t), make([]weak.Pointer[Op], 1<<14)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range kept {
		o := write(pool1)
		o.Object.Name = strconv.Itoa(i)
		r.submit(o)
		kept[i] = weak.Make(o)
		if i == mostSpare/2 && testing.AllocsPerRun(4, r.m.flush) > 0 {
			t.Error("a few operations that wait take new memory each time that they are looked at")
		}
	}
	r.up()
	for i := range kept {
		r.reply(kept[i].Value(), osdop.Reply{})
	}
	r.take()
	runtime.GC()
	runtime.ReadMemStats(&after)
	for i, o := range kept {
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); o.Value() != nil || grown > 1<<20 {
			t.Fatalf("operation %d is kept: %v; %d bytes", i, o.Value() != nil, grown)
		}
	}
	runtime.KeepAlive(r)
}
