package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ringmsgr/ringmsgr/cmd/shared/kvformat"
)

// verifyEach is how many acknowledged puts are read back behind each slice.
const verifyEach = 64

// Ledger is what a server has acknowledged: how often each key was put. It outlives
// connections, and the server too: what it says must be there when that starts again. It
// belongs to one Work at a time.
type Ledger struct{ generations []uint64 }

// NewLedger makes that of an empty server with so many keys.
func NewLedger(keys int) *Ledger { return &Ledger{make([]uint64, keys)} }

// Whole says whether every key was put.
func (l *Ledger) Whole() bool { return !slices.Contains(l.generations, 0) }

// Ledgers are those of all servers that a client knows. They belong to one goroutine.
type Ledgers map[string]*Ledger

// Of returns that of a server, for so many keys of values of size bytes.
func (l Ledgers) Of(server string, size, keys int) *Ledger {
	name := fmt.Sprint(server, size, keys)
	if l[name] == nil {
		l[name] = NewLedger(keys)
	}
	return l[name]
}

// Options say what clients ask for.
type Options struct {
	Put  bool `json:"put"`  // else they get
	Keys int  `json:"keys"` // that there are
}

// Validate reports what is wrong with o, for so many requests open of so many bytes.
func (o Options) Validate(open, size int) error {
	var errs []error
	if o.Keys < open {
		errs = append(errs, fmt.Errorf("%d keys for %d requests, which have keys of their own", o.Keys, open))
	}
	if size > kvformat.MaxValue {
		errs = append(errs, fmt.Errorf("values of %d bytes, %d at most", size, kvformat.MaxValue))
	}
	return errors.Join(errs...)
}

// Turn is one request.
type Turn struct {
	Key        int64
	Put        bool
	Generation uint64 // of what is put, or must be got
}

// Work decides what clients ask for, and knows what they must get. Each slot, which has
// one request under way, has keys of its own, so that it is certain which value a key has.
// Any goroutine may use it.
type Work struct {
	*Values
	opt    Options
	ledger *Ledger
	slots  int

	mu     sync.Mutex
	queued bool    // only what is in the queue
	puts   bool    // and that is to be put
	queue  []int64 // keys
	recent [verifyEach]int64
	acked  int // puts in this slice
}

// NewWork makes the work of so many slots on values of size bytes. ledger is of the server.
func NewWork(o Options, size, slots int, ledger *Ledger) *Work {
	return &Work{Values: NewValues(size), opt: o, ledger: ledger, slots: slots}
}

// FillRest has all keys put next that never were, by whichever slot.
func (w *Work) FillRest() {
	w.queued, w.puts, w.queue = true, true, w.queue[:0]
	for key, g := range w.ledger.generations {
		if g == 0 {
			w.queue = append(w.queue, int64(key))
		}
	}
}

// Measure has slots ask for what the options say, without end.
func (w *Work) Measure() { w.queued, w.acked = false, 0 }

// ReadBack has the last keys that were put since Measure be read next, and says whether
// there are any.
func (w *Work) ReadBack() bool {
	w.queued, w.puts, w.queue = true, false, append(w.queue[:0], w.recent[:min(w.acked, verifyEach)]...)
	return len(w.queue) > 0
}

// ReadAll has all keys be read next.
func (w *Work) ReadAll() {
	w.queued, w.puts, w.queue = true, false, w.queue[:0]
	for key := range w.ledger.generations {
		w.queue = append(w.queue, int64(key))
	}
}

// Next is the next request of a slot. It is false if there is none.
func (w *Work) Next(slot int) (t Turn, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.queued:
		own := (len(w.ledger.generations) - slot + w.slots - 1) / w.slots
		t = Turn{Key: int64(slot + rand.IntN(own)*w.slots), Put: w.opt.Put}
	case len(w.queue) == 0:
		return t, false
	default:
		t = Turn{Key: w.queue[len(w.queue)-1], Put: w.puts}
		w.queue = w.queue[:len(w.queue)-1]
	}
	t.Generation = w.ledger.generations[t.Key]
	if t.Put {
		t.Generation++
	}
	return t, true
}

// Done takes the answer to a request: of a get the value, which it checks. Error: ErrValue.
func (w *Work) Done(t Turn, value []byte) error {
	if !t.Put {
		return w.Check(value, t.Key, t.Generation)
	}
	if len(value) > 0 {
		return fmt.Errorf("%w: %d bytes in answer to a put", ErrValue, len(value))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.generations[t.Key] = t.Generation
	if !w.queued {
		w.recent[w.acked%verifyEach] = t.Key
		w.acked++
	}
	return nil
}
