package machine

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var (
	seeds = flag.Int("seeds", 3000, "number of runs of the simulation")
	only  = flag.Uint64("seed", 0, "the one to run; 0: all")
)

// fakeMap is a map whose groups have the acting sets that the simulation chose.
type fakeMap struct {
	epoch, flags uint32
	pools        map[int64]osdmap.Pool
	acting       map[osdmap.PG][]int32
	addrs        map[int32]wire.Addr
	near         map[int32]int32
}

func (f *fakeMap) Epoch() uint32 { return f.epoch }
func (f *fakeMap) Flags() uint32 { return f.flags }
func (f *fakeMap) Pool(id int64) *osdmap.Pool {
	if p, ok := f.pools[id]; ok {
		return &p
	}
	return nil
}
func (f *fakeMap) Addr(osd int32) wire.Addr { return f.addrs[osd] }

func (f *fakeMap) Place(o osdop.Object, pick int) Place {
	hash := uint32(spread(uint64(o.Name[len(o.Name)-1])) >> 7)
	p := Place{PG: group(o.Pool, hash, f.pools[o.Pool].PGNum), Hash: hash, Shard: -1, Primary: -1, UpPrimary: -1}
	if set := f.acting[p.PG]; len(set) > 0 {
		p.Primary, p.UpPrimary = set[0], set[0]
	}
	p.Sets(f.acting[p.PG], f.acting[p.PG], pick, func() map[int32]int32 { return f.near })
	return p
}

// group is the group of a hash in a pool with a power of two of them.
func group(pool int64, hash, groups uint32) osdmap.PG {
	return osdmap.PG{Pool: pool, Seed: hash & (groups - 1)}
}

func (f *fakeMap) clone() *fakeMap {
	g := *f
	g.epoch++
	g.pools, g.acting, g.addrs = maps.Clone(f.pools), maps.Clone(f.acting), maps.Clone(f.addrs)
	return &g
}

// refusal is a back-off on one connection.
type refusal struct {
	b    *osdop.Backoff
	s    *Session
	conn int
}

// sent is a message on its way to an OSD, or back.
type sent struct {
	s       *Session
	conn    int // that carries it
	op      *Op
	tid     uint64
	attempt int32
	env     osdop.Envelope
	reply   *osdop.Reply
	balance bool
}

// cluster is a fake one: OSDs that obey the rules of real ones, over connections that break, and a client's machines. Each object has
// a goroutine that begins operations, each when the one before is in the queue of a machine.
type cluster struct {
	t    *testing.T
	rng  *rand.Rand
	f    *fleet
	now  time.Time
	maps []*fakeMap // all epochs
	told int        // how many of them the client has
	// since is the epoch at which each group got its primary, interval that at which its interval began.
	since, interval map[osdmap.PG]uint32
	full            uint32 // the epoch at which the cluster became full the last time

	conns    map[*Session]int // numbers of live connections
	last     int
	inflight []*sent // in the order of sending
	blocked  map[osdmap.PG]*refusal
	ids      uint64

	objects  map[string][]uint64 // appended ids, in the order of their effect
	latest   map[string]int      // of those that wait where the cluster is full
	tids     map[string]uint64   // the highest in effect, of these
	coming   map[string]*coming  // by object
	queues   [osds + 1][]*Op     // handed to machines, which have not taken them
	begun    map[string][]*Op    // by object, in their order
	seq      map[*Op]int
	applied  map[uint64]bool // tids
	ops      map[*Op]string
	done     map[*Op]error
	failures []string
	sends    int
	repeats  int
	canceled int
}

const (
	osds  = 4
	pool1 = 1
)

func (c *cluster) failf(format string, args ...any) {
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 3)), now: time.Unix(1000, 0), conns: map[*Session]int{}, since: map[osdmap.PG]uint32{}, interval: map[osdmap.PG]uint32{},
		blocked: map[osdmap.PG]*refusal{}, objects: map[string][]uint64{}, latest: map[string]int{}, tids: map[string]uint64{}, coming: map[string]*coming{}, begun: map[string][]*Op{}, seq: map[*Op]int{}, applied: map[uint64]bool{}, ops: map[*Op]string{}, done: map[*Op]error{},
	}
	c.f = newFleet(c.now)
	f := &fakeMap{epoch: 1, near: map[int32]int32{1: 3, 2: 1, 3: 1}, pools: map[int64]osdmap.Pool{pool1: {ReadTier: -1, WriteTier: -1, PGNum: 4, Kind: osdmap.PoolReplicated}}, acting: map[osdmap.PG][]int32{}, addrs: map[int32]wire.Addr{}}
	for i := range int32(osds) {
		f.addrs[i] = c.address(1, i)
	}
	c.fill(f)
	c.maps = []*fakeMap{f}
	return c
}

func (c *cluster) address(epoch uint32, osd int32) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, Nonce: epoch, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(1000+osd))}
}

// fill gives acting sets to groups that have none, of OSDs that are up.
func (c *cluster) fill(f *fakeMap) {
	for seed := range f.pools[pool1].PGNum {
		pg := osdmap.PG{Pool: pool1, Seed: seed}
		var set []int32
		for _, osd := range f.acting[pg] {
			if !f.addrs[osd].IsBlank() {
				set = append(set, osd)
			}
		}
		if len(set) == 0 {
			for _, osd := range c.rng.Perm(osds)[:2] {
				if !f.addrs[int32(osd)].IsBlank() {
					set = append(set, int32(osd))
				}
			}
		}
		f.acting[pg] = set
	}
}

func (c *cluster) newest() *fakeMap { return c.maps[len(c.maps)-1] }

// change publishes a map.
func (c *cluster) change() {
	f := c.newest().clone()
	pg := osdmap.PG{Pool: pool1, Seed: c.rng.Uint32N(f.pools[pool1].PGNum)}
	switch n := c.rng.IntN(10); n {
	case 0, 1: // another primary
		f.acting[pg] = nil
	case 2: // an OSD goes down, or comes back elsewhere
		osd := c.rng.Int32N(osds)
		if f.addrs[osd].IsBlank() || c.rng.IntN(2) == 0 {
			f.addrs[osd] = c.address(f.epoch, osd)
			c.begin(f, osd)
		} else {
			delete(f.addrs, osd)
		}
	case 3: // split or merge
		p := f.pools[pool1]
		groups := uint32(4) << c.rng.IntN(3)
		if groups == p.PGNum {
			return
		}
		p.PGNum = groups
		f.pools[pool1] = p
		for seed := range uint32(16) {
			pg.Seed = seed
			c.since[pg], c.interval[pg] = f.epoch, f.epoch
			if seed >= p.PGNum {
				delete(f.acting, pg)
			}
		}
	case 4:
		f.flags ^= osdmap.PauseWrites
	case 5:
		f.flags ^= osdmap.PauseReads
	case 6:
		if f.flags ^= osdmap.Full; f.flags&osdmap.Full != 0 {
			c.full = f.epoch
		}
	case 7: // everything is sent again
		p := f.pools[pool1]
		p.Resend = f.epoch
		f.pools[pool1] = p
		for pg := range f.acting {
			c.since[pg], c.interval[pg] = f.epoch, f.epoch
		}
	case 8: // nobody serves a group
		c.fill(f)
		f.acting[pg] = nil
		c.publish(f)
		return
	case 9: // groups agree anew, with the same OSDs
		p := f.pools[pool1]
		p.MinSize ^= 1
		f.pools[pool1] = p
	}
	c.fill(f)
	c.publish(f)
}

// begin starts new intervals of the groups of an OSD that is another process now.
func (c *cluster) begin(f *fakeMap, osd int32) {
	for pg, set := range f.acting {
		if len(set) > 0 && set[0] == osd {
			c.since[pg] = f.epoch
		}
	}
}

func (c *cluster) publish(f *fakeMap) {
	before := c.newest()
	c.maps = append(c.maps, f)
	for pg, set := range f.acting {
		was := before.acting[pg]
		if (len(was) == 0) != (len(set) == 0) || len(set) > 0 && was[0] != set[0] {
			c.since[pg] = f.epoch
		}
		if !slices.Equal(was, set) || f.pools[pool1].MinSize != before.pools[pool1].MinSize {
			c.interval[pg] = f.epoch
		}
	}
}

func (c *cluster) act() {
	for again := true; again; {
		again = false
		for _, m := range c.f.all {
			for _, a := range m.Take() {
				again = true
				c.carryOut(m, a)
			}
		}
	}
}

func (c *cluster) carryOut(m *Machine, a Action) {
	switch a.What {
	case Dial:
		c.conns[a.Session] = 0
	case HangUp:
		c.cut(a.Session)
		delete(c.conns, a.Session)
	case Send:
		if a.Session.Full || c.rng.IntN(20) == 0 { // the queue of the connection is full
			m.Stalled(a.Op)
		} else {
			c.send(m, a.Op)
		}
	case Finish:
		if _, twice := c.done[a.Op]; twice {
			c.failf("operation %d is finished twice", a.Op.TID)
		}
		c.done[a.Op] = a.Err
	case Newest:
		m.Newest(c.newest().epoch)
	}
}

func (c *cluster) send(m *Machine, o *Op) {
	c.sends++
	if o.Attempt > 0 {
		c.repeats++
	}
	cur := m.cur.(*fakeMap)
	full := cur.flags&osdmap.Full != 0
	for _, p := range c.begun[o.Object.Name] { // the order of each object
		if p == o {
			break
		} else if c.over(p) {
			continue
		}
		if waits := p.Active || p.TID == 0; waits && !p.sent && p.bounced == 0 && o.bounced == 0 && !p.replica() && !o.replica() && !(o.passes() && full && !p.passes()) {
			c.failf("operation %d (%d) on %s is sent before %d (%d)", c.seq[o], o.TID, o.Object.Name, c.seq[p], p.TID)
		}
	}
	if o.flags&osdop.FlagWrite != 0 && (cur.flags&osdmap.PauseWrites != 0 || full && !o.mayExceed()) ||
		o.flags&osdop.FlagRead != 0 && cur.flags&osdmap.PauseReads != 0 {
		c.failf("operation %d is sent while the cluster takes none", o.TID)
	}
	if set := cur.acting[o.at.PG]; o.flags&osdop.LocalizeReads != 0 && o.Session.OSD != slices.MinFunc(set, func(a, b int32) int { return int(cmp.Or(cur.near[a], 9) - cmp.Or(cur.near[b], 9)) }) {
		c.failf("operation %d goes to osd.%d, of %v with the distances %v", o.TID, o.Session.OSD, set, cur.near)
	}
	if o.TID > c.f.ids.tids.Load() {
		c.failf("operation %d has a number that was not given", o.TID)
	}
	if c.conns[o.Session] == 0 || o.Session.OSD != m.osd {
		c.failf("operation %d is sent without a connection", o.TID)
	}
	c.inflight = append(c.inflight, &sent{
		s: o.Session, conn: c.conns[o.Session], op: o, tid: o.TID, attempt: o.Attempt, env: m.Envelope(o),
		balance: o.replica(),
	})
}

// writes says that the operation changes its object, as the OSD finds out.
func (o *Op) writes() bool { return o.Flags&osdop.FlagWrite != 0 || o.User != nil }

// replica says that the operation may go to any OSD of its group, in any order.
func (o *Op) replica() bool { return o.flags&osdop.AnyReplica != 0 }

// cut loses what a session carries.
func (c *cluster) cut(s *Session) {
	n := c.conns[s]
	c.inflight = slices.DeleteFunc(c.inflight, func(m *sent) bool { return m.s == s && m.conn == n })
}

// step has one thing happen.
func (c *cluster) step(calm bool) {
	c.hasten()
	n := c.rng.IntN(20)
	if calm {
		n = 8 + c.rng.IntN(9)
	}
	switch {
	case n < 3 && len(c.ops) < 60:
		o := &Op{Object: osdop.Object{Pool: pool1, Name: string(rune('a' + c.rng.IntN(6)))}, Flags: osdop.FlagWrite}
		if n := c.rng.IntN(10); n < 5 {
			o.Flags, o.Pick = osdop.FlagRead|[]uint32{0, osdop.BalanceReads, osdop.LocalizeReads, osdop.RWOrdered, 0}[n], []int{0, c.rng.Int(), Nearest, 0, 0}[n]
			if n == 4 {
				o.User = "a method of a class, which writes"
			}
		} else if c.rng.IntN(8) == 0 {
			o.Flags |= osdop.FullTry
		}
		c.start(o)
	case n == 3:
		c.change()
	case n == 4: // a connection breaks
		if s := c.session(); s != nil && c.conns[s] != 0 {
			c.lose(s)
		}
	case n == 5: // an OSD does not want a group for some time
		c.block()
	case n == 7 && c.rng.IntN(4) == 0:
		c.cancel()
	case n < 10:
		c.tell()
	case n < 12: // a connection is made
		if s := c.session(); s != nil && c.conns[s] == 0 && s.Addr == c.newest().addrs[s.OSD] {
			c.last++
			c.conns[s] = c.last
			c.f.of(s.OSD).Up(s)
		}
	case n == 12:
		c.unblock()
		if s := c.session(); s != nil && s.Full {
			c.f.of(s.OSD).Room(s)
		}
	case n == 13:
		c.now = c.now.Add(time.Second)
		for _, m := range c.f.all {
			m.Tick(c.now)
		}
	default:
		c.deliver()
	}
	c.act()
}

func (c *cluster) lose(s *Session) {
	c.cut(s)
	c.conns[s] = 0
	c.f.of(s.OSD).Lost(s, errors.New("cut"))
}

func (c *cluster) session() *Session {
	all := c.f.sessions()
	if len(all) == 0 {
		return nil
	}
	return all[c.rng.IntN(len(all))]
}

// block has an OSD refuse a group that it serves.
func (c *cluster) block() {
	f := c.newest()
	pg := osdmap.PG{Pool: pool1, Seed: c.rng.Uint32N(f.pools[pool1].PGNum)}
	if len(f.acting[pg]) == 0 || c.blocked[pg] != nil {
		return
	}
	for _, s := range c.f.sessions() {
		if conn := c.conns[s]; s.OSD == f.acting[pg][0] && conn != 0 && s.Addr == f.addrs[s.OSD] {
			c.ids++
			b := &osdop.Backoff{PG: pg, Shard: -1, What: osdop.Block, ID: c.ids, Begin: osdop.Min(), End: osdop.HObject{Max: true}}
			c.blocked[pg] = &refusal{b, s, conn}
			if err := c.f.of(s.OSD).Backoff(s, b); err != nil {
				c.failf("back-off: %v", err)
			}
			return
		}
	}
}

func (c *cluster) unblock() {
	if len(c.blocked) == 0 {
		return
	}
	pg := slices.MinFunc(slices.Collect(maps.Keys(c.blocked)), func(a, b osdmap.PG) int { return int(a.Seed) - int(b.Seed) })
	r := c.blocked[pg]
	delete(c.blocked, pg)
	if c.conns[r.s] == r.conn {
		c.inflight = slices.DeleteFunc(c.inflight, func(m *sent) bool { // what came meanwhile was dropped
			return m.conn == r.conn && m.reply == nil && m.env.PG == pg
		})
		b := *r.b
		b.What = osdop.Unblock
		_ = c.f.of(r.s.OSD).Backoff(r.s, &b)
	}
}

// deliver brings a message of some connection, the oldest of its direction, to its end.
func (c *cluster) deliver() {
	if len(c.inflight) == 0 {
		return
	}
	i := c.rng.IntN(len(c.inflight))
	for j, m := range c.inflight[:i] {
		if m.conn == c.inflight[i].conn && (m.reply == nil) == (c.inflight[i].reply == nil) {
			i = j
			break
		}
	}
	m := c.inflight[i]
	c.inflight = slices.Delete(c.inflight, i, i+1)
	if m.reply != nil {
		if o := c.f.of(m.s.OSD).Find(m.s, m.tid); o != nil {
			c.f.of(m.s.OSD).Reply(o, m.reply)
		}
		return
	}
	if r := c.serve(m); r != nil {
		m.reply = r
		c.inflight = append(c.inflight, m)
	}
}

// serve is what an OSD does with a request: nil, it drops it, as the client is to send it again.
func (c *cluster) serve(m *sent) *osdop.Reply {
	f := c.newest()
	if m.env.Epoch > f.epoch {
		c.failf("epoch %d of the future", m.env.Epoch)
	}
	pg := group(pool1, m.env.Hash, f.pools[pool1].PGNum)
	set, since := f.acting[pg], c.since[pg]
	if m.balance && len(set) > 0 && set[0] != m.s.OSD {
		since = c.interval[pg]
	}
	if m.s.Addr != f.addrs[m.s.OSD] || len(set) == 0 || set[0] != m.s.OSD && !(m.balance && slices.Contains(set, m.s.OSD)) || m.env.Epoch < since || m.env.PG != pg {
		return nil // not ours, or of another interval
	}
	if b := c.blocked[pg]; b != nil && b.conn == m.conn {
		return nil
	}
	write, name, seq := m.op.writes(), m.op.Object.Name, c.seq[m.op]
	if ordered := write || m.op.Flags&osdop.RWOrdered != 0; ordered && !m.op.mayExceed() && m.env.Epoch < c.full || write && !m.op.mayExceed() && f.flags&osdmap.Full != 0 {
		return nil // sent before it was full, or no room
	}
	r := &osdop.Reply{Attempt: m.attempt}
	if !write && c.rng.IntN(4) == 0 { // as if it were no primary; the order of the object ends there
		r.Result = -int32(syscall.EAGAIN)
	}
	if !write || c.applied[m.tid] {
		return r
	}
	c.applied[m.tid] = true
	c.objects[name] = append(c.objects[name], m.tid)
	if !m.op.mayExceed() && m.op.User == nil { // those that exceed may pass, and methods that an OSD had no room for
		if c.latest[name] > seq || c.tids[name] > m.tid {
			c.failf("%s: %d (%d) takes effect behind %d (%d)", name, seq, m.tid, c.latest[name], c.tids[name])
		}
		c.latest[name], c.tids[name] = seq, m.tid
	}
	return r
}

// run simulates one seed.
func run(t *testing.T, seed uint64) (*cluster, string) {
	c := newCluster(t, seed)
	for range 400 {
		c.step(false)
	}
	// The cluster calms down: everything comes to an end.
	f := c.newest().clone()
	f.flags = 0
	for i := range int32(osds) {
		if f.addrs[i].IsBlank() {
			f.addrs[i] = c.address(f.epoch, i)
			c.begin(f, i)
		}
	}
	c.fill(f)
	c.publish(f)
	for range 6000 {
		c.step(true)
		if len(c.done) == len(c.ops) {
			break
		}
	}
	for o, name := range c.ops {
		err, over := c.done[o]
		if !over {
			c.failf("operation %d on %s is not over: it waits for %q, session %+v", o.TID, name, o.wait, o.Session)
		} else if err != nil && err != errCanceled {
			c.failf("operation %d: %v", o.TID, err)
		}
		if n := count(c.objects[name], o.TID); over && o.writes() {
			if n > 1 || n == 0 && err == nil || n > 0 && !o.Seen() {
				c.failf("operation %d took effect %d times, %v, seen %v", o.TID, n, err, o.Seen())
			}
		}
		if err == errCanceled {
			c.canceled++
		}
	}
	for _, m := range c.f.all {
		if (m.ops.first != nil || m.Moves() || len(m.byTID) > 0 || len(m.held) > 0) && len(c.failures) == 0 {
			c.failf("the machine of osd.%d is not empty", m.osd)
		}
	}
	return c, strings.Join(c.failures, "\n")
}

func count(list []uint64, tid uint64) (n int) {
	for _, v := range list {
		if v == tid {
			n++
		}
	}
	return n
}

// Whatever happens to connections, maps and OSDs, each write takes effect once, those on an object in their order, nothing is
// sent while the cluster takes none, and everything comes to an end. An operation that is canceled leaves nothing behind, and takes
// effect never, if no OSD can have seen it.
func TestOperationsTakeEffectOnceAndInOrder(t *testing.T) {
	if *only != 0 {
		if _, bad := run(t, *only); bad != "" {
			t.Fatal(bad)
		}
		return
	}
	sends, repeats, canceled, bad := 0, 0, 0, 0
	for seed := uint64(1); seed <= uint64(*seeds); seed++ {
		c, text := run(t, seed)
		if text != "" {
			t.Errorf("seed %d:\n%s", seed, text)
			if bad++; bad == 3 {
				return
			}
		}
		sends, repeats, canceled = sends+c.sends, repeats+c.repeats, canceled+c.canceled
	}
	t.Logf("%d messages, %d of them sent again, %d operations canceled", sends, repeats, canceled)
	if repeats == 0 || canceled == 0 {
		t.Error("nothing was sent again, or canceled")
	}
}
