package pair

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// World is a server on a simulated disk, and the audit of it. Methods are for the goroutine
// of the test.
type World struct {
	*Audit
	*Pair
}

// calm is a disk without faults.
var calm = simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond}

// Simulate runs f with a server on an empty disk, in a bubble where time passes by itself.
func Simulate(t *testing.T, s Durable, f func(w *World)) {
	t.Helper()
	w := &World{}
	cfg := s.Pair
	cfg.Open = func(p *Pair) (*control.Dispatcher, error) {
		if w.Audit != nil { // it is not the first process
			w.wait() // all requests have ended
			w.Restarted()
			w.MayRefuse(false)
		}
		p.Do(func() { p.ServerHost.Disk().Configure(calm) })
		return s.Open(p)
	}
	Test(t, cfg, func(t *testing.T, p *Pair) {
		w.Pair, w.Audit = p, NewAudit(t, p.Context, s, cfg.Seed)
		w.Conns = []*control.Conn{p.Conn}
		f(w)
	})
}

// Restart ends the process, or cuts the power, and starts another one, whose disk has no
// faults. The error is that of Durable.Open.
func (w *World) Restart(power bool) error {
	err := w.Pair.Restart(power)
	w.Conns[0] = w.Conn
	return err
}

// MustRestart is Restart that fails the test if the server does not start.
func (w *World) MustRestart(power bool) {
	if err := w.Restart(power); err != nil {
		w.server.Wrong(fmt.Errorf("the server does not start: %w", err))
		w.MayRefuse(true) // there is none
	}
}

// Disk changes the faults of the disk. The server may refuse requests while it has faults, and
// when it has none any more recovers, for Durable.Pause.
func (w *World) Disk(opt simnet.DiskOptions) {
	w.Do(func() { w.ServerHost.Disk().Configure(opt) })
	faults := opt.ErrorEvery > 0 || opt.Room > 0 || opt.StopAt > 0 || opt.Fail != nil
	if w.faults.Load() && !faults {
		w.Pass(w.server.Pause)
	}
	w.MayRefuse(faults)
}

// Files are the names in a directory of the disk, in order.
func (w *World) Files(dir string) (names []string) {
	w.Do(func() { names, _ = w.ServerHost.Disk().List(dir) })
	return names
}

// Round is some load with some faults, and then perhaps the end of the process or of the
// power. Then the server must have every value that it has acknowledged.
func (w *World) Round() {
	opt := simnet.DiskOptions{Jitter: time.Duration(1+w.Rand.IntN(2000)) * time.Microsecond}
	if w.Rand.IntN(4) == 0 {
		opt.ErrorEvery = 5 + w.Rand.IntN(40)
	}
	if w.Rand.IntN(6) == 0 {
		opt.Room = int64(1 + w.Rand.IntN(40000))
	}
	if w.Rand.IntN(3) == 0 {
		opt.StopAt = 1 + w.Rand.IntN(6)
	}
	w.Disk(opt)
	for range w.Rand.IntN(12) {
		w.load(1 + w.Rand.IntN(24))
		w.wait()
		if w.Rand.IntN(8) == 0 {
			w.Pass(w.server.Pause)
		}
	}
	if w.Rand.IntN(4) > 0 || opt.StopAt > 0 {
		w.load(24)
		w.Pass(time.Duration(w.Rand.IntN(int(4 * time.Millisecond))))
		w.MustRestart(w.Rand.IntN(3) > 0)
	}
	w.Disk(simnet.DiskOptions{})
	w.Everything()
}

// Fill has the disk be full for a while: each Put must be refused with the reason, and each
// Get answered. With room again Puts must go on.
func (w *World) Fill() {
	w.Disk(simnet.DiskOptions{Room: 1})
	for range 2 { // the second time after the server's own attempts
		_, err := w.server.Ask(w.ctx, w.Conn, Put, keyOf(0), []byte("more"))
		if !errors.Is(err, w.server.Refused) || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
			w.server.Wrong(fmt.Errorf("a put on a full disk ends with %v", err))
		}
		w.All(Get, Keys)
		w.Pass(w.server.Pause)
	}
	w.Disk(simnet.DiskOptions{})
	w.All(Put, 1)
	w.All(Get, Keys)
}

// flips is the number of bits that Flip flips.
const flips = 5

// Flip flips bits of files in dir, one after the other, while the server writes no byte. Every
// value is right or an error then, also after a restart, if the server starts: else its error
// wraps damaged. The World is not used any more.
func (w *World) Flip(dir string, damaged error) {
	for range flips {
		w.MayRefuse(true)
		w.Pass(w.server.Pause)
		w.flip(dir)
		w.All(Get, Keys)
		switch err := w.Restart(false); {
		case errors.Is(err, damaged):
			return
		case err != nil:
			w.server.Wrong(fmt.Errorf("the server does not start: %w", err))
			return
		}
		w.MayRefuse(true)
		w.All(Get, Keys)
	}
}

// flip flips a bit somewhere.
func (w *World) flip(dir string) {
	names, flipped := w.Files(dir), false
	for tries := 0; tries < 100 && !flipped && len(names) > 0; tries++ {
		path, at := dir+"/"+names[w.Rand.IntN(len(names))], int64(w.Rand.IntN(4096))
		w.Do(func() { flipped = w.ServerHost.Disk().Flip(path, at, uint(w.Rand.IntN(8))) })
	}
}

// rounds of each seed.
const rounds = 8

// With enough seeds every kind of fault occurs.
const enough = 20

// Seeds are the seeds of a test, by its flags.
type Seeds struct {
	name  string
	n     *int
	first *uint64
}

// SeedFlags makes the flags -NAME.seeds, the number of seeds, and -NAME.first. For a variable
// of a test.
func SeedFlags(name string, n int) Seeds {
	seeds := flag.Int(name+".seeds", n, "seeds that the server is simulated with")
	return Seeds{name, seeds, flag.Uint64(name+".first", 1, "the first of them")}
}

// Enough says whether so many seeds should see every kind of fault.
func (s Seeds) Enough() bool { return *s.n >= enough }

// Endure runs a World for each seed: rounds with all faults, and then f. The test fails as
// well if enough seeds have not seen each kind of fault. Each seed is a subtest that is named
// by the flag that repeats it.
func Endure(t *testing.T, seeds Seeds, s func(seed uint64) Durable, f func(w *World)) {
	defer OnOneProcessor()()
	seen := make([]int, 6)
	for i := range *seeds.n {
		seed := *seeds.first + uint64(i)
		runtime.GC()
		t.Run(fmt.Sprintf("%s.first=%d", seeds.name, seed), func(t *testing.T) {
			Simulate(t, s(seed), func(w *World) {
				for range rounds {
					w.Round()
				}
				f(w)
				var c simnet.DiskCounts
				w.Do(func() { c = w.ServerHost.Disk().Counts() })
				for i, n := range []int{c.Crashes, c.Stops, c.Lost, c.Torn, c.Unnamed, c.Errors} {
					seen[i] += n
				}
			})
		})
	}
	if seeds.Enough() && slices.Min(seen) == 0 {
		t.Errorf("crashes, stops, writes lost, torn, names lost, failures: %d, want some of each", seen)
	}
}

// Keys is the number of keys: key-000 and so on.
const Keys = 30

func keyOf(number int) string { return fmt.Sprintf("key-%03d", number) }

// Act is a kind of request for a key.
type Act int

// The acts.
const (
	Put Act = iota
	Get
	Delete
)

// Random is an act, mostly a Put.
func Random(rng *rand.Rand) Act { return [...]Act{Put, Put, Put, Get, Delete}[rng.IntN(5)] }

// Durable is a server under test, with its requests.
type Durable struct {
	// Pair has the seed and the configuration of the server's messenger. Its Open is
	// replaced.
	Pair Config
	// Open opens the files of p.Server on its disk, which has no faults meanwhile, and returns
	// the dispatcher. It is called for each process of the server, on the test's goroutine.
	Open func(p *Pair) (*control.Dispatcher, error)
	// Ask makes a request, and returns the value that was got, which the caller then owns.
	// value is not empty, and is of a Put. Any goroutine.
	Ask func(ctx context.Context, c *control.Conn, act Act, key string, value []byte) ([]byte, error)
	// List returns all keys, in order. nil: the server cannot.
	List func(ctx context.Context, c *control.Conn) ([]string, error)
	// The errors of Ask wrap Missing if there is no such key, and Refused if the server has
	// refused. Any other error means that there was no answer.
	Missing, Refused error
	// Pause is the time in which the server recovers from faults that are over, and does the
	// work that it does without requests.
	Pause time.Duration
	// Wrong is told of each thing that the server must not have done, on any goroutine. nil: the test fails.
	Wrong func(err error)
}

// Audit makes requests, and judges the answers by its ledger. Of each key it has one request
// under way. Methods are for the goroutine of the test, but for Ask.
type Audit struct {
	ledger
	// Conns lead to the server; a key belongs to one of them. They change only while no request
	// is under way.
	Conns []*control.Conn
	// Rand chooses the requests.
	Rand *rand.Rand

	server  Durable
	ctx     context.Context
	under   sync.WaitGroup // requests under way
	version atomic.Uint64
	faults  atomic.Bool // requests may be refused
}

// NewAudit makes the audit of an empty server. ctx ends its requests. A wrong answer fails t.
func NewAudit(t testing.TB, ctx context.Context, s Durable, seed uint64) *Audit {
	if s.Wrong == nil {
		s.Wrong = func(err error) { t.Error(err) }
	}
	return &Audit{server: s, ctx: ctx, Rand: rand.New(rand.NewPCG(seed, 1))}
}

// valueOf is up to 1500 bytes, of some versions 20 000, that begin with the version.
func valueOf(key string, version uint64) []byte {
	most := 1500
	switch {
	case version == 0:
		return nil
	case version%16 == 0:
		most = 20000
	}
	text := fmt.Appendf(nil, "%d of %s,", version, key)
	n := max(len(text), int(uint32(version)*2654435761>>8)%most)
	return bytes.Repeat(text, 1+n/len(text))[:n]
}

// MayRefuse says whether the server may refuse requests from now on.
func (a *Audit) MayRefuse(yes bool) { a.faults.Store(yes) }

// Ask makes a request for the key of a number and judges the answer. The error says that
// there is none. Any goroutine.
func (a *Audit) Ask(act Act, number int) error {
	key, version := keyOf(number), uint64(0)
	if act == Put {
		version = a.version.Add(1)
	}
	data, err := a.server.Ask(a.ctx, a.Conns[number%len(a.Conns)], act, key, valueOf(key, version))
	refused, missing := errors.Is(err, a.server.Refused), errors.Is(err, a.server.Missing)
	switch {
	case refused && !a.faults.Load():
		a.server.Wrong(fmt.Errorf("%s is refused: %w", key, err))
	case err != nil && !missing && act != Get:
		a.Refused(key, version)
	case err == nil && act != Get:
		a.Acknowledged(key, version)
	case err == nil || missing:
		version = 0
		_, _ = fmt.Sscanf(string(data), "%d of", &version) // else 0
		if !bytes.Equal(data, valueOf(key, version)) {
			a.server.Wrong(fmt.Errorf("%s has a wrong value of %d bytes", key, len(data)))
		}
		if err := a.Found(key, version); err != nil {
			a.server.Wrong(err)
		}
	}
	if refused || missing {
		return nil
	}
	return err
}

// All asks the same of the first n keys of a server that runs, which must answer, and waits.
func (a *Audit) All(act Act, n int) {
	for number := range n {
		a.under.Go(func() {
			if err := a.Ask(act, number); err != nil {
				a.server.Wrong(fmt.Errorf("%s has no answer: %w", keyOf(number), err))
			}
		})
	}
	a.under.Wait()
}

// load makes n requests, each for another key, and does not wait.
func (a *Audit) load(n int) {
	for _, number := range a.Rand.Perm(Keys)[:n] {
		act := Random(a.Rand)
		a.under.Go(func() { _ = a.Ask(act, number) })
	}
}

// wait waits for all requests to end.
func (a *Audit) wait() { a.under.Wait() }

// Everything reads all keys, and lists them.
func (a *Audit) Everything() {
	a.All(Get, Keys)
	if a.server.List == nil {
		return
	}
	names, err := a.server.List(a.ctx, a.Conns[0])
	if want := a.Present(); err != nil || fmt.Sprint(names) != fmt.Sprint(want) {
		a.server.Wrong(fmt.Errorf("the keys are %q, %v; want %q", names, err, want))
	}
}

// Storm asks for all keys at once, again and again, until there is no answer. Once n requests
// are answered it calls end, which ends the server; some go on meanwhile. The connections are
// marked down then, and the ledger knows that another process is next.
func (a *Audit) Storm(n int, end func()) {
	var left atomic.Int64
	left.Store(int64(n))
	for number := range Keys {
		rng := rand.New(rand.NewPCG(a.Rand.Uint64(), 1))
		a.under.Go(func() {
			for a.Ask(Random(rng), number) == nil {
				if left.Add(-1) == 0 {
					end()
					for _, c := range a.Conns {
						c.MarkDown()
					}
				}
			}
		})
	}
	a.under.Wait()
	a.Restarted()
}

// ledger knows the values that a durable server must have, for tests that end its process or
// cut its power at any moment: an acknowledged change is there, and a change without an answer
// is there from the next process on, or never. A value has a version, which a test does not
// use twice for a key; 0 stands for no value. The zero ledger is of an empty
// server. Any goroutine.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
	life int // number of the server's process
}

// account are the known changes of a key.
type account struct {
	acked uint64
	maybe []attempt // since then, that were not acknowledged
}

type attempt struct {
	version uint64
	life    int
}

func (l *ledger) account(key string) *account {
	if l.keys == nil {
		l.keys = map[string]*account{}
	}
	if l.keys[key] == nil {
		l.keys[key] = &account{}
	}
	return l.keys[key]
}

// Acknowledged notes a change that the server has confirmed. The changes of a key must be made
// one after the other.
func (l *ledger) Acknowledged(key string, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.account(key) = account{acked: version}
}

// Refused notes a change that failed, or had no answer: it may have happened.
func (l *ledger) Refused(key string, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.account(key)
	k.maybe = append(k.maybe, attempt{version, l.life})
}

// Found notes the version that was read. The error says that the server must not have it, or
// must not have it any more.
func (l *ledger) Found(key string, version uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.account(key)
	acked, ok := k.acked, version == k.acked
	k.maybe = slices.DeleteFunc(k.maybe, func(a attempt) bool {
		ok = ok || a.version == version && a.life < l.life
		return a.life < l.life // it is decided
	})
	k.acked = version
	if !ok {
		return fmt.Errorf("pair: %s has version %d, and %d was acknowledged", key, version, acked)
	}
	return nil
}

// Restarted notes that the server's process has ended: the next process gets the requests
// that follow.
func (l *ledger) Restarted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life++
}

// Present are the keys that have a value, in order, once each was Found or Acknowledged.
func (l *ledger) Present() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.keys {
		if k.acked != 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
