package interop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// thrashed is a cluster to which something happens all the time, while workers use it.
type thrashed struct {
	*cluster
	*rand.Rand
	t      *testing.T
	ctx    context.Context
	cl     *rados.Cluster
	pools  []rados.Pool
	groups map[string]int // of each pool
	said   []string       // what happened
	coming []int          // what happens next, by its place among all that can
	over   atomic.Bool    // the workers end
	failed chan struct{}  // closed with the first failure
	once   sync.Once
}

// While OSDs and monitors are killed, stopped and started, OSDs go out and in and get other weights, groups split, merge and move, the
// cluster pauses, a pool reaches its quota, another one is deleted, and connections break, no acknowledged write is lost, appends
// are there exactly once and in order, each operation ends once the cluster is whole, and sessions, goroutines and memory do not
// grow. A canceled operation of unknown outcome was carried out once or never. It takes a minute, or RINGMSGR_LONG, and until each of
// these has happened once; RINGMSGR_SAMPLE=SEED repeats the choices.
// Matrix: IN-12, IN-15
func TestNoWriteIsLostWhateverHappensToTheCluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	seed, long, began := sample(t), time.Minute, time.Now()
	if s := os.Getenv("RINGMSGR_LONG"); s != "" {
		var err error
		long, err = time.ParseDuration(s)
		check(t, err)
	}
	// Disks in memory would forget what a killed OSD has acknowledged.
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", mons: 3, osds: 5, more: "debug ms = 0\n" +
		"osd objectstore = bluestore\nbluestore block size = 1073741824\nmon allow pool delete = true\nmon max pg per osd = 1000\n" +
		"mon tick interval = 1\nmgr tick period = 1\nosd pool default erasure code profile = plugin=jerasure technique=reed_sol_van k=2 m=1 crush-failure-domain=osd\n"})
	c.startManager()
	ctx, cancel := context.WithCancel(within(t, long+10*patience))
	defer cancel()
	x := &thrashed{
		cluster: c, Rand: rand.New(rand.NewPCG(seed, 0)), t: t, ctx: ctx, cl: dialCluster(t, c, "msgr2.1", uring.Auto),
		groups: map[string]int{}, failed: make(chan struct{}),
	}
	for _, how := range [][]string{
		{"three", "replicated", "size 3"}, {"two", "replicated", "size 2"}, {"coded", "erasure", "allow_ec_overwrites true"},
	} {
		name := how[0]
		c.createPool(name, "8 8 "+how[1], how[2])
		p, err := x.cl.Pool(ctx, name)
		check(t, err)
		x.pools, x.groups[name] = append(x.pools, p), 8
	}
	var workers sync.WaitGroup
	var all []*worker
	for i := range 6 {
		w := newWorker(x, seed, i)
		all = append(all, w)
		workers.Go(w.work)
	}
	t.Logf("the cluster is there after %v", time.Since(began).Round(time.Second))
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	x.fill(x.pools[0])
	for all, end := false, time.Now().Add(long); (!all || time.Now().Before(end)) && !t.Failed(); {
		all = x.happen() || all
	}
	x.heal()
	x.over.Store(true)
	healed := time.Now()
	var ended atomic.Bool
	go func() { workers.Wait(); ended.Store(true) }()
	if !await(2*patience, ended.Load) {
		t.Errorf("operations do not end; the daemons say:\n%s", x.holdsUp())
		cancel()
		workers.Wait() // each tells what it has waited for
		return
	}
	t.Logf("the workers end %v after the cluster is whole", time.Since(healed).Round(time.Millisecond))
	done, unsent, unknown, carried, slowest := 0, 0, 0, 0, time.Duration(0)
	for _, w := range all {
		for _, m := range w.objects {
			w.verify(m)
		}
		done, slowest = done+w.done, max(slowest, w.slowest)
		unsent, unknown, carried = unsent+w.unsent, unknown+w.unknown, carried+w.carried
	}
	t.Logf("%d operations, the slowest took %v; %d were canceled before they were sent, %d with unknown outcome, of which %d were carried out; the cluster: %q",
		done, slowest.Round(time.Millisecond), unsent, unknown, carried, x.said)
	if done < 50 {
		t.Errorf("%d operations only", done)
	}
	if n := len(x.cl.Messenger().Conns()); n > len(c.osds)+len(c.allMons) {
		t.Errorf("%d connections to %d daemons", n, len(c.daemons()))
	}
	if n := runtime.NumGoroutine(); n > goroutines+50 { // other tests run beside this one
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if n := heapInUse(); n > heap+128<<20 {
		t.Errorf("%d MiB of heap, %d before", n>>20, heap>>20)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fail ends the test.
func (x *thrashed) fail(format string, args ...any) {
	x.t.Errorf(format, args...)
	x.once.Do(func() { close(x.failed) })
	x.over.Store(true)
}

// pass has a while go by, of at most so many milliseconds.
func (x *thrashed) pass(most int) {
	after := time.NewTimer(time.Duration(1+x.IntN(most)) * time.Millisecond)
	defer after.Stop()
	select {
	case <-after.C:
	case <-x.failed:
	}
}

// tell has the monitors do something. They may refuse.
func (x *thrashed) tell(args ...string) {
	if _, err := tryTool(x.t, "ceph", append([]string{"--conf", x.file("ceph.conf"), "--connect-timeout", "60"}, args...)...); err != nil {
		x.said = append(x.said, fmt.Sprint("refused: ", err))
	}
}

// happen makes one change to the cluster, and takes most of them back. It says when all have happened as often.
func (x *thrashed) happen() (all bool) {
	osd, p := x.IntN(len(x.osds)), pickOf(x.Rand, x.pools...)
	id, d := strconv.Itoa(osd), x.osds[osd]
	m := x.mons[x.IntN(len(x.mons))]
	things := []struct {
		name string
		do   func()
	}{
		{"kill " + d.name, func() { d.kill(); x.pass(pickOf(x.Rand, 100, 2000)); d.restart(x.t); x.pass(2000) }},
		{"stop " + d.name, func() { d.freeze(x.t); x.pass(3000); d.thaw(x.t) }},
		{"kill our monitor", x.killMonitor},
		{"stop " + m.name, func() { m.freeze(x.t); x.pass(3000); m.thaw(x.t) }},
		{"down " + id, func() { x.tell("osd", "down", id) }},
		{"out " + id, func() { x.tell("osd", "out", id); x.pass(2000); x.tell("osd", "in", id) }},
		{"reweight " + id, func() { x.tell("osd", "reweight", id, pickOf(x.Rand, "0.3", "0.7", "1")) }},
		{"affinity " + id, func() { x.tell("osd", "primary-affinity", "osd."+id, pickOf(x.Rand, "0", "0.5", "1")) }},
		{"groups of " + p.Name(), func() { x.resize(p.Name()) }},
		{"upmap in " + p.Name(), func() { x.upmap(p, osd) }},
		{"pause", func() { x.tell("osd", "pause"); x.pass(1000); x.tell("osd", "unpause") }},
		{"fill " + p.Name(), func() { x.fill(p) }},
		{"delete a pool", x.deletePool},
		{"hang up", func() { hangUp(x.cl); x.pass(300); hangUp(x.cl) }},
	}
	if len(x.coming) == 0 {
		x.coming = x.Perm(len(things))
	}
	thing := things[x.coming[0]]
	x.coming, x.said = x.coming[1:], append(x.said, thing.name)
	thing.do()
	x.pass(500)
	return len(x.coming) == 0
}

// killMonitor kills the monitor of our session, which goes to another one.
func (x *thrashed) killMonitor() {
	mons := x.cl.Mon()
	var session *control.Conn
	another := func() bool { now := mons.Conn(); return now != nil && now != session }
	if !await(2*patience, another) {
		x.fail("no session: %v", mons.Err())
		return
	}
	session = mons.Conn()
	at := slices.IndexFunc(x.allMons, func(a wire.AddrVec) bool { return a.V2().AddrPort == session.Info().PeerAddrs.V2().AddrPort })
	x.mons[at].kill()
	if !await(2*patience, another) {
		x.fail("no other session behind the end of mon.%s: %v", monID(at), mons.Err())
	}
	x.mons[at].restart(x.t)
}

func pickOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// resize splits the groups of a pool, or merges the last one.
func (x *thrashed) resize(pool string) {
	n := x.groups[pool] + pickOf(x.Rand, 1, 3, 5, -1)
	if n < 4 || n > 32 {
		return
	}
	x.tell("osd", "pool", "set", pool, "pg_num", strconv.Itoa(n)) // or the manager takes it back
	steps := []string{"pg_num_actual", "pgp_num_actual"}
	if n < x.groups[pool] {
		slices.Reverse(steps)
	}
	for _, what := range steps {
		if err := setGroups(x.ctx, x.cl, pool, what, n); err != nil {
			x.said = append(x.said, fmt.Sprintf("refused: %s %d: %v", what, n, err))
			return
		}
	}
	x.groups[pool] = n
	x.said = append(x.said, fmt.Sprint("to ", n))
}

// upmap moves a group from its first OSD to another one, or back.
func (x *thrashed) upmap(p rados.Pool, to int) {
	pg := fmt.Sprintf("%d.%x", p.ID(), x.IntN(4))
	var at struct{ Up []int }
	check(x.t, json.Unmarshal(x.ceph("pg", "map", pg, "--format", "json"), &at))
	if len(at.Up) == 0 || x.IntN(3) == 0 {
		x.tell("osd", "rm-pg-upmap-items", pg)
		return
	}
	x.tell("osd", "pg-upmap-items", pg, strconv.Itoa(at.Up[0]), strconv.Itoa(to))
}

// fill has a pool reach its quota, and lifts it. Meanwhile a write is refused if it asks for that, and else waits.
func (x *thrashed) fill(p rados.Pool) {
	x.tell("osd", "pool", "set-quota", p.Name(), "max_objects", "1")
	write := func(flags rados.Flags, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(x.ctx, limit)
		defer cancel()
		return p.WithFlags(flags).Object("filler").Append(ctx, []byte("more"))
	}
	var refused, waits error
	if !await(2*patience, func() bool { refused = write(rados.FullTry, patience); return errors.Is(refused, syscall.EDQUOT) }) {
		x.fail("the quota of pool %s does not count: %v", p.Name(), refused)
	}
	if !await(2*patience, func() bool {
		waits = write(0, 100*time.Millisecond)
		return errors.Is(waits, rados.ErrNotSent) && strings.Contains(waits.Error(), "the pool has reached its quota")
	}) {
		x.fail("a write to the full pool %s: %v", p.Name(), waits)
	}
	x.pass(1000)
	x.tell("osd", "pool", "set-quota", p.Name(), "max_objects", "0")
	if err := write(0, 2*patience); err != nil {
		x.fail("a write when pool %s has no quota any more: %v", p.Name(), err)
	}
}

// deletePool deletes a pool under the writes to it, which succeed or find it gone.
func (x *thrashed) deletePool() {
	p, err := x.cl.CreatePool(x.ctx, fmt.Sprint("brief", len(x.said)))
	if err != nil {
		x.fail("create a pool: %v", err)
		return
	}
	var writes sync.WaitGroup
	for i := range 20 {
		writes.Go(func() {
			var err error
			for err == nil && x.ctx.Err() == nil {
				err = p.Object(fmt.Sprint("o", i)).Append(x.ctx, []byte("gone"))
			}
			if !errors.Is(err, fs.ErrNotExist) {
				x.fail("a write to a pool that is deleted: %v", err)
			}
		})
	}
	x.pass(500)
	if err := p.Delete(x.ctx); err != nil {
		x.fail("delete a pool: %v", err)
	}
	writes.Wait()
}

// heal takes back the changes that hold operations up, and waits until all OSDs are up.
func (x *thrashed) heal() {
	x.tell("osd", "unpause")
	for i := range x.osds {
		x.tell("osd", "in", strconv.Itoa(i))
	}
	x.awaitUp(len(x.osds))
}

// holdsUp is what the daemons say about operations that do not end.
func (x *thrashed) holdsUp() string {
	var all strings.Builder
	for _, command := range []string{"health detail", "osd dump", "pg dump pgs_brief", "osd blocked-by"} {
		out, err := tryTool(x.t, "ceph", append([]string{"--conf", x.file("ceph.conf"), "--connect-timeout", "60"}, strings.Fields(command)...)...)
		fmt.Fprintf(&all, "%s: %v\n%s\n", command, err, out)
	}
	for _, d := range x.osds {
		var ops json.RawMessage
		err := d.command(map[string]any{"prefix": "ops"}, &ops)
		fmt.Fprintf(&all, "%s: %v\n%s\n", d.name, err, ops)
	}
	return all.String()
}
