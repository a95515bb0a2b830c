package loop

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	piece     = 64 << 10           // of a file, as the tests read it
	pieceHeld = piece + classSlack // what its buffer counts
	pieces    = 48                 // that fit the bound, so that a share is less than one
	bytesOf   = pieces * pieceHeld // the bound
	shareOf   = bytesOf / 64
)

var errLeft = errors.New("the peer has left")

// accountBed is a fileBed whose reads are for accounts, and whose buffers stay with the test.
type accountBed struct {
	*fileBed
	order []*Account // of the requests that have ended
}

func newAccountBed(t *testing.T, opt FileOptions) *accountBed {
	b := &accountBed{fileBed: newFileBed(t, opt, func(cfg *Config) { cfg.FileBytes = bytesOf })}
	must(t, b.f.WriteAt(&newRequest().FileOp, make([]byte, 8*piece), 0, Written))
	b.answer(uring.KindWrite, 0)
	return b
}

// accountRead is a request that keeps its buffer.
type accountRead struct {
	noted
	buf *Buffer
}

// ask asks for n pieces of that size.
func (b *accountBed) ask(a *Account, n, size int) (list []*accountRead) {
	b.t.Helper()
	for range n {
		r := &accountRead{}
		r.For = a
		r.Done = func(_ *Core, op *FileOp) {
			r.done++
			b.order = append(b.order, a)
			if r.Err == nil {
				r.buf = op.TakeBuffer()
			}
		}
		must(b.t, b.f.ReadBuffer(&r.FileOp, size, 0))
		list = append(list, r)
	}
	return list
}

// serve answers a request of the driver: it has read all, and nobody looks at the bytes.
func (b *accountBed) serve(i int) {
	r := b.d.Files[i]
	b.d.AnswerWith(r, int32(r.Vec.Size()))
}

// work answers the driver's requests until it has none.
func (b *accountBed) work() {
	b.t.Helper()
	for b.settle(); len(b.d.Files) > 0; b.settle() {
		b.serve(0)
		if n := b.c.reads.used; n > bytesOf {
			b.t.Fatalf("%d bytes are held, the bound is %d", n, bytesOf)
		}
	}
}

// fill has others hold all of the bound.
func (b *accountBed) fill() (list []*accountRead) {
	b.t.Helper()
	for range pieces {
		list = append(list, b.ask(new(Account), 1, piece)...)
	}
	if b.work(); b.c.reads.used != bytesOf {
		b.t.Fatalf("%d bytes are held", b.c.reads.used)
	}
	return list
}

// answerAll is work, beyond the bound.
func (b *accountBed) answerAll() {
	b.t.Helper()
	for b.settle(); len(b.d.Files) > 0; b.settle() {
		b.serve(0)
	}
}

// back gives the buffers of the requests that have one back.
func (b *accountBed) back(list []*accountRead) (n int) {
	for _, r := range list {
		if r.buf != nil {
			r.buf.LetGo()
			r.buf = nil
			n++
		}
	}
	b.settle()
	return n
}

func lent(list []*accountRead) (n int) {
	for _, r := range list {
		if r.buf != nil {
			n++
		}
	}
	return n
}

// However many ask for more than there is: what they have stays within the bound, and who
// comes behind them gets its answer.
// Matrix: ST-15
func TestPeersThatNeverReadLeaveOthersRoom(t *testing.T) {
	for _, peers := range []int{1, 3, 10, 20} {
		b := newAccountBed(t, FileOptions{})
		hostile := make([]Account, peers)
		for i := range hostile {
			b.ask(&hostile[i], 100, piece)
		}
		b.work()
		if n := b.c.reads.used; n < bytesOf/4 || peers == 1 && n > bytesOf/4 {
			t.Errorf("%d peers hold %d bytes of %d", peers, n, bytesOf)
		}
		if b.f.Full() {
			t.Errorf("%d peers: the file is full, and the driver has nothing to do", peers)
		}
		var honest Account
		for range 5 {
			got := b.ask(&honest, 1, piece)
			b.work()
			if b.back(got) != 1 {
				t.Fatalf("%d peers hold %d bytes, and the read of another one waits", peers, b.c.reads.used)
			}
		}
	}
}

// Who holds nothing comes first, in order, and nobody passes.
// Matrix: ST-15
func TestBytesThatComeBackAreForWhoHoldsNothing(t *testing.T) {
	b := newAccountBed(t, FileOptions{})
	all := b.fill()
	more := b.ask(all[0].For, 1, piece) // of one that holds something
	var second, first Account
	one, two := b.ask(&first, 1, 2*piece), b.ask(&second, 1, piece)
	b.back(all[1:2])
	late := b.ask(new(Account), 1, piece)
	if b.work(); lent(one)+lent(two)+lent(more)+lent(late) != 0 {
		t.Fatal("a read has passed one that came before")
	}
	b.back(all[2:4])
	if b.work(); lent(one) != 1 || lent(two) != 1 || lent(more) != 0 {
		t.Errorf("of those that wait %d and %d are served, and %d that hold something", lent(one), lent(two), lent(more))
	}
	b.back(all)
	if b.work(); lent(more) != 1 {
		t.Error("who held something is not served")
	}
}

// Matrix: ST-15
func TestTheEndOfAnAccountFreesItsPlaceInLine(t *testing.T) {
	b := newAccountBed(t, FileOptions{Ops: 1})
	var ends, next Account
	told := 0
	ends.Emptied = func(*Account) { told++ }
	held := b.fill()
	gone, waits := b.ask(&ends, 20, 3*piece), b.ask(&next, 1, piece)
	if !ends.Starved() || ends.line.n != 20 || b.f.Full() {
		t.Fatalf("starved: %t, %d wait", ends.Starved(), ends.line.n)
	}
	b.back(held[:1])
	if b.work(); lent(waits) != 0 {
		t.Fatal("it has passed the one before")
	}
	ends.Cancel(errLeft, false)
	b.settle()
	for _, r := range gone {
		b.ended(&r.noted, errLeft)
	}
	if told != 1 || ends.line.n != 0 || ends.held != 0 {
		t.Errorf("told %d times, %d wait, %d bytes held", told, ends.line.n, ends.held)
	}
	if b.work(); lent(waits) != 1 {
		t.Error("the next in line is not served")
	}
	b.back(held)
	again := b.ask(&ends, 3, piece)
	ends.Cancel(errLeft, true) // its reader stands still, and goes on: what it asks for then waits as before
	again = append(again, b.ask(&ends, pieces, piece)...)
	if b.work(); lent(again) != pieces/4 {
		t.Errorf("it has %d pieces of %d", lent(again), pieces)
	}
	for n := b.back(again); n > 0; n = b.back(again) {
		b.work()
	}
	for _, r := range again {
		b.ended(&r.noted, nil)
	}
	if b.c.stats.Files.Waiting != 0 || b.c.reads.parked != 0 {
		t.Errorf("%+v", b.c.stats.Files)
	}
}

func TestAReadLargerThanTheBoundPassesAlone(t *testing.T) {
	b := newAccountBed(t, FileOptions{})
	var small, large Account
	one, two := b.ask(&small, 1, piece), b.ask(&large, 1, 2*bytesOf)
	b.work()
	if lent(one) != 1 || b.c.reads.parked != 1 {
		t.Fatalf("%d reads wait", b.c.reads.parked)
	}
	b.back(one)
	b.answerAll()
	if two[0].done != 1 {
		t.Error("it waits for more than there is")
	}
}

// Whatever happens, everything ends once, nothing is held that was given back, and the bound
// holds.
// Matrix: ST-15
func TestTheMemoryForReadsAddsUp(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := newAccountBed(t, FileOptions{Ops: 1 + rnd.IntN(4)})
		if seed%3 == 0 { // the driver is what there is too little of
			b.c.reads.limit *= 10
			b.c.reads.share *= 10
		}
		limit := b.c.reads.limit
		accounts := make([]Account, 1+rnd.IntN(20))
		for i := range accounts {
			accounts[i].Emptied = func(a *Account) {
				if a.line.n != 0 {
					t.Error("requests wait")
				}
			}
		}
		var all []*accountRead
		for range 300 {
			a := &accounts[rnd.IntN(len(accounts))]
			switch rnd.IntN(10) {
			case 0, 1, 2, 3:
				all = append(all, b.ask(a, 1+rnd.IntN(4), 1+rnd.IntN(8*piece))...)
			case 4:
				if rnd.IntN(3) == 0 {
					a.Cancel(errLeft, rnd.IntN(2) == 0)
				}
			case 5, 6:
				if len(b.d.Files) > 0 {
					b.serve(rnd.IntN(len(b.d.Files)))
				}
			case 7:
				must(t, b.c.turn(false))
			default:
				if len(all) > 0 {
					b.back(all[rnd.IntN(len(all)):][:1])
				}
			}
			sum := b.c.reads.own.held
			for i := range accounts {
				sum += accounts[i].held
			}
			if used := b.c.reads.used; sum != used || used > limit+limit/4+16*piece || b.c.pool.inUse > used {
				t.Fatalf("seed %d: %d bytes are held, %d in sum, %d lent", seed, used, sum, b.c.pool.inUse)
			}
		}
		if seed%2 == 0 {
			b.f.Close()
			if b.settle(); b.c.reads.parked != 0 {
				t.Fatalf("seed %d: %d requests wait for a file that is closed", seed, b.c.reads.parked)
			}
		}
		for range 10_000 {
			b.settle()
			if len(b.d.Files) > 0 {
				b.serve(0)
			} else if b.back(all) == 0 {
				break
			}
		}
		for i, r := range all {
			if r.done != 1 {
				t.Fatalf("seed %d: request %d of %d has ended %d times", seed, i, len(all), r.done)
			}
		}
		if r := &b.c.reads; r.used != 0 || r.parked != 0 || len(r.waiting)+len(r.first)+len(r.ready) != 0 || b.c.pool.inUse != 0 {
			t.Fatalf("seed %d: %d bytes held, %d requests wait", seed, r.used, r.parked)
		}
		b.close()
	}
}

// Who holds what others wait for is asked once a second, unless it has given something back.
// Matrix: ST-15
func TestBytesThatOthersWaitForAreAskedFor(t *testing.T) {
	b := newAccountBed(t, FileOptions{})
	asked := map[*Account]int{}
	all := b.fill()
	for _, r := range all {
		a := r.For
		a.Wanted = func() {
			if asked[a]++; r == all[7] {
				b.back(all[7:8])
			}
		}
	}
	if b.after(10 * time.Second); len(asked) != 0 {
		t.Errorf("%d are asked, and nobody waits", len(asked))
	}
	var late Account
	waits := b.ask(&late, 2, 3*piece)
	b.after(time.Second)
	if len(asked) != 0 {
		t.Errorf("%d are asked that were never asked before", len(asked))
	}
	b.back(all[:1])
	b.after(time.Second)
	if len(asked) != pieces-1 || asked[all[0].For] != 0 {
		t.Errorf("%d are asked, who has given all back %d times", len(asked), asked[all[0].For])
	}
	b.back(all[1:6])
	if b.work(); lent(waits) != 1 {
		t.Fatal("who waits is not served")
	}
	if b.after(10 * time.Second); asked[all[40].For] != 1 || len(b.c.reads.holding) != pieces-7+1 {
		t.Errorf("asked %d times, %d hold something", asked[all[40].For], len(b.c.reads.holding))
	}
	for b.back(all); b.back(waits) > 0; {
		b.work()
	}
	if n := len(b.c.reads.holding); n != 0 || b.c.reads.used != 0 {
		t.Errorf("%d hold something at the end", n)
	}
}

// A buffer may come back from any goroutine while the core sleeps, with nothing else to do.
// Matrix: ST-15
func TestBytesThatAnotherGoroutineGivesBackWakeTheCore(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores, cfg.FileBytes = 1, 2*pieceHeld
		p := newPlane(t, cfg)
		f := openOn(t, p.Core(0), t.TempDir()+"/f", uring.Buffered)
		var a Account
		ended := make(chan *borrowed, 1)
		for range 2 { // the second waits for the first
			op := &FileOp{For: &a, Done: func(_ *Core, op *FileOp) {
				b := &borrowed{buf: op.TakeBuffer()}
				b.loan.Of = b
				ended <- b
			}}
			must(t, p.Core(0).call(func(*Core) { must(t, f.ReadBuffer(op, piece, 0)) }))
		}
		p.Core(0).Return(&await(t, ended).loan)
		last, cancelled := await(t, ended), make(chan struct{})
		must(t, p.Close())
		p.Core(0).Post(&Task{Run: func(*Core) { a.Cancel(ErrStopped, false); close(cancelled) }})
		p.Core(0).Return(&last.loan) // beside that, which the race detector sees
		await(t, cancelled)
	})
}

// Bytes that come back at the end of a turn are for reads of the next one.
// Matrix: ST-15
func TestACoreWhoseReadsMayGoOnDoesNotRest(t *testing.T) {
	b := newAccountBed(t, FileOptions{})
	var a Account
	got := b.ask(&a, pieces, piece)
	b.work()
	had, back := lent(got), &borrowed{buf: got[0].buf}
	back.loan.Of = back
	b.c.Return(&back.loan)
	if b.work(); lent(got) != had+1 {
		t.Errorf("%d reads have ended, want one more than %d", lent(got), had)
	}
}
