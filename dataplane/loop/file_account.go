package loop

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// The buffers of ReadBuffer are bounded in bytes (Config.FileBytes): a request is promised
// its bytes before it stands in the line of its file, takes the buffer when it begins, and
// holds it until somebody gives it back, such as the write of an answer that the peer has
// taken. Whose request it is says FileOp.For.
//
// Requests of an account wait in a line of its own, and at most one of them stands in the
// line of a file: so accounts take turns, however many requests each has.
//
// Which request is promised bytes:
//
//   - One within the account's share (a 64th of the bound, 1 MiB at most), as long as all
//     shares together exceed the bound by no more than a quarter. So small answers pass,
//     whatever others hold.
//   - Else one of an account that holds nothing, if so much is left. Those that find too
//     little wait in the order in which they came, and nobody passes them. One that is
//     larger than the bound passes when nothing is held.
//   - Else one with which its account holds no more than is left to others in the first half
//     of the bound: one account has a quarter of the bound at most, and the second half is for
//     those that hold nothing.
//
// An account that holds something is looked at again when it gets something back, so that
// giving back costs the same however many wait.
//
// Whoever waits for bytes without holding any depends on those that do. So these are told once
// in pressEvery, unless they have given something back since (Account.Wanted).

const pressEvery = time.Second

// FileBounds are Config.FileBytes, or its default, and the share of each Account of that, in
// bytes.
func (c *Config) FileBounds() (bound, share int64) {
	bound = cmp.Or(c.FileBytes, 512<<20)
	return bound, min(bound/64, 1<<20)
}

// Account is for whom files are read on one core, such as a connection: it has a share of
// the memory for reads, and its turn. It is embedded in what it stands for. The
// zero Account is ready for use. Owner: the core of its first request.
type Account struct {
	// Emptied, if not nil, is told on the core when requests have waited in the line of the
	// account, and none does any more. It makes no request.
	Emptied func(a *Account)
	// Wanted, if not nil, is told on the core once a second while others wait for the bytes
	// that the account holds, and it has given none back in that time.
	Wanted func()

	core  *Core
	held  int64  // bytes of its buffers, promised ones included
	line  opLine // requests that wait for their turn, or for bytes
	waits bool   // some do: it is in readBudget.waiting
	at    int    // where
	turn  bool   // one of its requests is in the line of a file
	first bool   // in readBudget.first
	ready bool   // in readBudget.ready
	place int    // where in readBudget.holding, while it holds something
	gave  bool   // it has given bytes back since they were asked for
}

// Starved says that the next request waits for bytes: whoever has more should stop taking
// what makes them until Emptied. On the core.
func (a *Account) Starved() bool {
	op := a.line.first
	return op != nil && !a.core.reads.fits(a, op.need())
}

// Cancel ends the requests that wait with err, later, on the core: nobody waits for them any
// more. What has begun goes on. On the core.
func (a *Account) Cancel(err error) {
	if a.core == nil {
		return
	}
	a.core.assertOwner()
	a.drop(func(*FileOp) bool { return true }, err)
}

// readBudget is what a core has of accounts. Owner: the core.
type readBudget struct {
	core    *Core
	limit   int64
	share   int64
	used    int64
	own     Account    // of requests that are for nobody (FileOp.For)
	waiting []*Account // that have requests in line
	parked  int        // how many requests those are
	first   []*Account // of these, those that hold nothing and wait for bytes, in order
	ready   []*Account // of these, those whose next request may begin
	holding []*Account // that hold something
	press   Timer      // asks for bytes back, while there are first
	due     bool       // bytes came back for which somebody may wait
	serving bool
}

// need is how many bytes the request is to be promised.
func (op *FileOp) need() int64 {
	return lentSize(max(pageSize, op.file.room(op)))
}

// fits says whether a is promised n bytes more.
func (b *readBudget) fits(a *Account, n int64) bool {
	switch {
	case a.held+n <= b.share && b.used+n <= b.limit+b.limit/4 || a == &b.own && a.held == 0:
		return true
	case len(b.first) > 0 && b.first[0] != a:
		return false
	case a == &b.own || a.held == 0:
		return n <= b.limit-b.used || b.used == 0
	}
	return a.held+n <= b.limit/2-b.used
}

// add has a request wait for its turn, which may be now.
func (b *readBudget) add(op *FileOp) {
	a := op.For
	if a == nil {
		a = &b.own
	}
	invariants.Check(a.core == nil || a.core == b.core || a.held == 0 && a.line.first == nil, "an account on two cores")
	op.whose, a.core = a, b.core
	a.line.push(op)
	op.file.park(1)
	b.core.stats.Files.Waiting++
	b.next(a)
}

// next has the requests of a stand in the lines of their files that may.
func (b *readBudget) next(a *Account) {
	defer b.settle(a)
	for op := a.line.first; op != nil; op = a.line.first {
		n := op.need()
		switch {
		case a.turn && a != &b.own:
			return
		case b.fits(a, n):
		case op.file.ended != nil: // it leaves its core: the bytes may never come
			a.drop(func(o *FileOp) bool { return o.file.ended != nil }, nil)
			continue
		default:
			if !a.first && (a.held == 0 || a == &b.own) {
				a.first = true
				b.first = append(b.first, a)
				b.pressLater()
			}
			return
		}
		if a.first {
			a.first = false
			b.first = without(b.first, a)
		}
		a.line.pop()
		op.file.park(-1)
		op.charged, a.turn = n, true
		if a.held == 0 {
			a.place, a.gave = len(b.holding), true
			b.holding = append(b.holding, a)
		}
		a.held += n
		b.used += n
		op.file.line.push(op)
		op.file.pump()
	}
}

// park counts n requests of the file more that wait in lines of accounts.
func (f *File) park(n int) {
	f.parked += n
	f.core.reads.parked += n
}

// settle notes whether requests of a wait, and tells it when none does any more.
func (b *readBudget) settle(a *Account) {
	if waits := a.line.first != nil; a.waits == waits {
		return
	} else if a.waits = waits; waits {
		a.at = len(b.waiting)
		b.waiting = append(b.waiting, a)
		return
	}
	last := len(b.waiting) - 1
	b.waiting[a.at] = b.waiting[last]
	b.waiting[a.at].at = a.at
	b.waiting[last] = nil
	b.waiting = b.waiting[:last]
	if a.first {
		a.first, b.due = false, true
		b.first = without(b.first, a)
	}
	if a.Emptied != nil {
		a.Emptied(a)
	}
}

// without is list without a.
func without(list []*Account, a *Account) []*Account {
	kept := list[:0]
	for _, o := range list {
		if o != a {
			kept = append(kept, o)
		}
	}
	clear(list[len(kept):])
	return kept
}

// drop ends requests that wait, those that are chosen, with err, or why their file ends.
func (a *Account) drop(chosen func(op *FileOp) bool, err error) {
	b := &a.core.reads
	line := a.line
	a.line = opLine{}
	for op := line.pop(); op != nil; op = line.pop() {
		if !chosen(op) {
			a.line.push(op)
			continue
		}
		op.file.park(-1)
		b.core.stats.Files.Waiting--
		why := err
		if why == nil {
			why = op.file.ended
		}
		op.endLater(fmt.Errorf("%s: %w", op.file.name, why))
	}
	b.settle(a)
	b.look(a)
}

// failOf ends the requests on f that wait, of all accounts.
func (b *readBudget) failOf(f *File, err error) {
	for i := len(b.waiting) - 1; i >= 0; i-- {
		b.waiting[i].drop(func(op *FileOp) bool { return op.file == f }, err)
	}
}

// leave has all who wait be looked at, as a file leaves the core.
func (b *readBudget) leave() {
	for _, a := range b.waiting {
		b.look(a)
	}
}

// look has a looked at soon.
func (b *readBudget) look(a *Account) {
	if a.line.first != nil && !a.ready {
		a.ready = true
		b.ready = append(b.ready, a)
	}
}

// turned says that the request of a is out of the line of its file.
func (b *readBudget) turned(a *Account) {
	a.turn = false
	b.look(a)
}

// giveBack takes n bytes of a back.
func (b *readBudget) giveBack(a *Account, n int64) {
	a.held -= n
	b.used -= n
	if a.gave = true; a.held == 0 {
		last := len(b.holding) - 1
		b.holding[a.place] = b.holding[last]
		b.holding[a.place].place = a.place
		b.holding[last] = nil
		b.holding = b.holding[:last]
	}
	b.look(a)
	b.due = b.due || len(b.first) > 0
}

// pressLater has bytes asked for that somebody waits for.
func (b *readBudget) pressLater() {
	if !b.press.Armed() {
		b.core.timers.arm(&b.press, b.core.now+pressEvery)
	}
}

// ask tells those that hold what others wait for, and have given nothing back.
func (b *readBudget) ask(*Core, time.Duration) {
	if len(b.first) == 0 {
		return
	}
	for _, a := range b.holding {
		if !a.gave && a.Wanted != nil {
			a.Wanted()
		}
		a.gave = false
	}
	b.pressLater()
}

// busy says that serve has something to do.
func (b *readBudget) busy() bool { return b.due || len(b.ready) > 0 }

// serve goes on with accounts that may: those before that hold nothing.
func (b *readBudget) serve() {
	if b.serving || !b.busy() {
		return
	}
	b.serving = true
	b.due = false
	for len(b.first) > 0 {
		a := b.first[0]
		if b.next(a); len(b.first) > 0 && b.first[0] == a {
			break
		}
	}
	for i := 0; i < len(b.ready); i++ {
		a := b.ready[i]
		a.ready = false
		b.next(a)
	}
	clear(b.ready)
	b.ready = b.ready[:0]
	b.serving = false
}
