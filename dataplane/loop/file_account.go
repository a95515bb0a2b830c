package loop

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// The buffers of ReadBuffer are bounded in bytes (Config.FileBytes). A request reserves its
// bytes before it enters the line of its file, takes the buffer when it begins, and holds it
// until the buffer is given back, for example by the write of an answer that the peer has
// taken. FileOp.For is the account of the request.
//
// Requests of an account wait in a line of its own, and at most one of them stands in the
// line of a file: so accounts take turns, however many requests each has.
//
// A request may reserve its bytes in one of these cases:
//
//   - It is within the account's share (a 64th of the bound, 1 MiB at most), and all shares
//     together exceed the bound by at most a quarter. So small answers pass, whatever other
//     accounts hold.
//   - Its account holds nothing, and the bytes are free. Accounts that find too few bytes
//     wait in the order in which they came, and no account passes them. A request larger than
//     the bound passes when nothing is held.
//   - With it the account holds no more than the free bytes of the first half of the bound.
//     So one account has at most a quarter of the bound, and the second half is for accounts
//     that hold nothing.
//
// An account that holds bytes is looked at again when it gets some back, so the cost of
// giving back does not depend on the number of waiting accounts.
//
// An account that waits for bytes and holds none depends on the accounts that hold some. These
// get Account.Wanted once in pressEvery, unless they have given bytes back since.
//
// A reader may stand still until its requests have ended (Cancel with fit). These pass the
// requests of other accounts, up to the bound. The next request of the account ends that.

const pressEvery = time.Second

// FileBounds are Config.FileBytes, or its default, and the share of each Account of that, in
// bytes.
func (c *Config) FileBounds() (bound, share int64) {
	bound = cmp.Or(c.FileBytes, 512<<20)
	return bound, min(bound/64, 1<<20)
}

// Account is the share of one reader, such as a connection, in the memory for reads of one
// core, and its place in the turns. The reader embeds it. The zero Account is ready for use.
// Owner: the core of its first request.
type Account struct {
	// Emptied, if not nil, is called on the core when the line of the account has become
	// empty. It makes no request.
	Emptied func(a *Account)
	// Wanted, if not nil, is called on the core once a second while other accounts wait for
	// bytes and this one, which holds some, has given none back in that time.
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
	rest  error  // of requests that find no room, until the next one comes (Cancel); nil: they wait
}

// Starved says that the next request waits for bytes: the reader should make no more
// requests until Emptied. On the core.
func (a *Account) Starved() bool {
	op := a.line.first
	return op != nil && !a.core.reads.fits(a, op.need())
}

// Cancel ends the waiting requests with err, later, on the core. Requests that have begun go
// on. With fit waiting requests begin as long as the bound has room for them, and err is for the
// others: the reader stands still, and gives nothing back. On the core.
func (a *Account) Cancel(err error, fit bool) {
	if a.line.first == nil { // as behind the end of the core, where Return may look at the line
		return
	}
	a.core.assertOwner()
	if fit {
		a.rest = err
		a.core.reads.look(a)
		return
	}
	a.drop(func(*FileOp) bool { return true }, err)
}

// readBudget is the memory for reads of a core, and its accounts. Owner: the core.
type readBudget struct {
	core    *Core
	limit   int64
	share   int64
	used    int64
	own     Account    // of requests that are for nobody (FileOp.For)
	waiting []*Account // that have requests in line
	parked  int        // the number of their requests
	first   []*Account // of these, accounts that hold nothing and wait for bytes, in order
	ready   []*Account // of these, accounts whose next request may begin
	holding []*Account // that hold something
	press   Timer      // asks for bytes back, while there are first
	due     bool       // bytes came back for which somebody may wait
	serving bool
}

// need is the number of bytes to promise to the request.
func (op *FileOp) need() int64 {
	return lentSize(max(pageSize, op.file.room(op)))
}

// fits says whether a is promised n bytes more.
func (b *readBudget) fits(a *Account, n int64) bool {
	switch {
	case a.held+n <= b.share && b.used+n <= b.limit+b.limit/4 || a == &b.own && a.held == 0:
		return true
	case a.rest == nil && len(b.first) > 0 && b.first[0] != a:
		return false
	case a == &b.own || a.held == 0 || a.rest != nil:
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
	op.whose, a.core, a.rest = a, b.core, nil
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
		case a.rest != nil:
			a.drop(func(*FileOp) bool { return true }, a.rest)
			return
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

// settle notes whether requests of a wait, and calls Emptied when none does any more.
func (b *readBudget) settle(a *Account) {
	if waits := a.line.first != nil; a.waits == waits {
		return
	} else if a.waits = waits; waits {
		a.at = len(b.waiting)
		b.waiting = append(b.waiting, a)
		b.core.short.Store(true)
		return
	}
	last := len(b.waiting) - 1
	b.waiting[a.at] = b.waiting[last]
	b.waiting[a.at].at = a.at
	b.waiting[last] = nil
	b.waiting = b.waiting[:last]
	b.core.short.Store(last > 0)
	if a.rest = nil; a.first {
		a.first, b.due = false, true
		b.first = without(b.first, a)
	}
	if a.Emptied != nil {
		a.Emptied(a)
	}
}

// without is list without a.
func without(list []*Account, a *Account) []*Account {
	return slices.DeleteFunc(list, func(o *Account) bool { return o == a })
}

// drop ends the chosen waiting requests with err.
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
		op.endLater(fmt.Errorf("%s: %w", op.file.name, err))
	}
	b.settle(a)
	b.look(a)
}

// look has a looked at soon.
func (b *readBudget) look(a *Account) {
	if a.line.first != nil && !a.ready {
		a.ready = true
		b.ready = append(b.ready, a)
	}
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

// pressLater calls ask later, for the accounts that wait.
func (b *readBudget) pressLater() {
	if !b.press.Armed() {
		b.core.timers.arm(&b.press, b.core.now+pressEvery)
	}
}

// ask calls Wanted of the accounts that hold bytes and have given none back.
func (b *readBudget) ask(*Core, time.Duration) {
	if len(b.first) == 0 {
		return
	}
	for _, a := range slices.Clone(b.holding) { // who is asked may give back at once
		if !a.gave && a.Wanted != nil {
			a.Wanted()
		}
		a.gave = false
	}
	b.pressLater()
}

// busy reports whether serve has work.
func (b *readBudget) busy() bool { return b.due || len(b.ready) > 0 }

// serve goes on with accounts whose next request may begin, first with accounts that hold
// nothing.
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
