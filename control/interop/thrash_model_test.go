package interop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// worker changes objects that nobody else changes, and knows their content.
type worker struct {
	*thrashed
	*rand.Rand
	objects []*model
	done    int
	slowest time.Duration
	mark    int // of the last data
	// Canceled operations: those that no OSD has seen, those of unknown outcome, and how many of the latter were carried out.
	unsent, unknown, carried int
}

// model is an object with the state that it must have.
type model struct {
	rados.Object
	state
	coded   bool // of an erasure-coded pool, which has no omap
	history []string
}

// state is all that an object has. The zero state is that of no object.
type state struct {
	exists       bool
	content      []byte
	xattrs, omap map[string][]byte
}

// present is a copy of the state for a change that makes the object.
func (s state) present() state {
	if !s.exists {
		return state{true, nil, map[string][]byte{}, map[string][]byte{}}
	}
	return state{true, bytes.Clone(s.content), maps.Clone(s.xattrs), maps.Clone(s.omap)}
}

func newWorker(x *thrashed, seed uint64, i int) *worker {
	w := &worker{thrashed: x, Rand: rand.New(rand.NewPCG(seed, uint64(i+1)))}
	for n := range 8 {
		p := x.pools[n%len(x.pools)].WithNamespace(pickOf(w.Rand, "", "space")).WithFlags(pickOf(w.Rand, 0, rados.OrderReads))
		w.objects = append(w.objects, &model{Object: p.Object(fmt.Sprintf("of worker %d: %d", i, n)), coded: p.Name() == "coded"})
	}
	return w
}

// did adds a line to the history of an object.
func (m *model) did(format string, args ...any) {
	m.history = append(m.history, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	m.history = m.history[max(0, len(m.history)-40):]
}

// lost ends the test with the history of an object.
func (w *worker) lost(m *model, format string, args ...any) {
	w.fail("object %q of %s: %s\n%s\nthe cluster: %q", m.Name(), m.Pool().Name(), fmt.Sprintf(format, args...), strings.Join(m.history, "\n"), w.said)
}

func (w *worker) work() {
	for !w.over.Load() {
		m := w.objects[w.Rand.IntN(len(w.objects))]
		switch w.Rand.IntN(8) {
		case 0, 1:
			w.verify(m)
		case 2, 3:
			w.appendMany(m)
		case 4:
			var op rados.WriteOp
			op.Remove()
			w.write(m, "remove", &op, state{})
		default:
			w.change(m)
		}
	}
}

// mayCancel is the context of an operation, which one in four times ends soon.
func (w *worker) mayCancel() (context.Context, context.CancelFunc) {
	if w.Rand.IntN(4) > 0 {
		return context.WithCancel(w.ctx)
	}
	return context.WithTimeout(w.ctx, time.Duration(w.Rand.IntN(60))*time.Millisecond)
}

func (w *worker) operate(ctx context.Context, m *model, what string, op rados.Op) error {
	m.did("%s", what)
	began := time.Now()
	_, err := m.Operate(ctx, op)
	w.finished(m, 1, began, err)
	return err
}

func (w *worker) finished(m *model, n int, began time.Time, errs ...error) {
	took := time.Since(began)
	w.done, w.slowest = w.done+n, max(w.slowest, took)
	m.did("... %d after %v: %v", n, took.Round(time.Millisecond), errs)
}

// write carries out an operation that leads to another state.
func (w *worker) write(m *model, what string, op rados.Op, next state) {
	ctx, cancel := w.mayCancel()
	defer cancel()
	err := w.operate(ctx, m, what, op)
	if errors.Is(err, fs.ErrNotExist) && !m.exists && !next.exists {
		err = nil
	}
	w.settle(m, err, m.state, next)
}

// settle gives an object its state after an operation that may have been canceled. If the outcome is unknown both states are right,
// until a read tells which of them the object has. An OSD may have another read overtake the operation: one of an object that it
// recovers.
func (w *worker) settle(m *model, err error, before, after state) {
	switch {
	case err == nil:
		m.state = after
	case !errors.Is(err, context.DeadlineExceeded) || w.ctx.Err() != nil:
		w.lost(m, "%v", err)
	case errors.Is(err, rados.ErrNotSent):
		m.state, w.unsent = before, w.unsent+1
	case errors.Is(err, rados.ErrUnknown):
		plain := m.Object
		m.Object = m.Pool().WithFlags(rados.OrderReads).Object(m.Name())
		got := w.read(m)
		m.Object = plain
		if m.state, w.unknown = before, w.unknown+1; got.differs(after) == "" {
			m.state, w.carried = after, w.carried+1
		} else if text := got.differs(before); text != "" {
			w.lost(m, "after an unknown outcome it %s, or %s", text, got.differs(after))
		}
	default:
		w.lost(m, "canceled: %v", err)
	}
}

// data is like no other.
func (w *worker) data() []byte {
	w.mark++
	return bytes.Repeat(fmt.Appendf(nil, "<%d>", w.mark), 1+w.Rand.IntN(300))
}

// appendMany has several appends under way at a time. Their order is that of their beginnings. One of them may be canceled.
func (w *worker) appendMany(m *model) {
	ctx, cancel := w.mayCancel()
	defer cancel()
	errs := make([]error, 1+w.Rand.IntN(5))
	other := w.Rand.IntN(len(errs))
	without, with := m.state, m.present()
	var running sync.WaitGroup
	began := time.Now()
	for i := range errs {
		var op rados.WriteOp
		data, its := w.data(), ctx
		op.Append(data)
		m.did("append %.9s... of %d", data, len(data))
		if with.content = append(with.content, data...); i != other {
			its, without = w.ctx, without.present()
			without.content = append(without.content, data...)
		}
		running.Add(1)
		over := func(_ uint64, err error) { errs[i] = err; running.Done() }
		if err := m.Start(its, &op, over); err != nil {
			over(0, err)
		}
	}
	running.Wait()
	w.finished(m, len(errs), began, errs...)
	err := errs[other]
	if errs[other] = nil; errors.Join(errs...) != nil {
		w.lost(m, "append: %v", errs)
		return
	}
	w.settle(m, err, without, with)
}

// change has several steps change an object at once.
func (w *worker) change(m *model) {
	var op rados.WriteOp
	op.Create(false)
	next, what := m.present(), []string{}
	for i := range 1 + w.Rand.IntN(4) {
		data, key := w.data(), fmt.Sprint("key", w.Rand.IntN(8))
		did := fmt.Sprintf("%.9s... of %d", data, len(data))
		kind := w.Rand.IntN(7)
		if m.coded && i > 0 { // OSDs abort at two changes of the size
			kind = 4
		} else if m.coded {
			kind = min(kind, 4)
		}
		switch kind {
		case 0:
			did = "write all " + did
			op.WriteFull(data)
			next.content = bytes.Clone(data)
		case 1:
			at := w.Rand.IntN(len(next.content) + 100)
			did = fmt.Sprintf("write at %d %s", at, did)
			op.Write(uint64(at), data)
			next.content = append(next.content, make([]byte, max(0, at+len(data)-len(next.content)))...)
			copy(next.content[at:], data)
		case 2:
			did = "append " + did
			op.Append(data)
			next.content = append(next.content, data...)
		case 3:
			size := w.Rand.IntN(len(next.content) + 100)
			did = fmt.Sprint("truncate at ", size)
			op.Truncate(uint64(size))
			next.content = append(next.content, make([]byte, max(0, size-len(next.content)))...)[:size]
		case 4:
			did = "set xattr " + key
			op.SetXattr(key, data)
			next.xattrs[key] = data
		case 5:
			did = "set omap " + key
			op.SetOmap(map[string][]byte{key: data})
			next.omap[key] = data
		case 6:
			did = "remove omap " + key
			op.RemoveOmap(key)
			delete(next.omap, key)
		}
		what = append(what, did)
	}
	w.write(m, strings.Join(what, ", "), &op, next)
}

// read reads all of an object at once.
func (w *worker) read(m *model) (got state) {
	var op rados.ReadOp
	content, xattrs, omap := op.Read(0, 0), op.Xattrs(), &rados.Result[rados.Page]{}
	if !m.coded {
		omap = op.Omap("", "", 100)
	}
	err := w.operate(w.ctx, m, "read", &op)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}
	} else if err != nil {
		w.lost(m, "read: %v", err)
		return m.state // of which nothing more is said
	}
	got = state{true, content.Value, xattrs.Value, map[string][]byte{}}
	for _, p := range omap.Value.Pairs {
		got.omap[p.Key] = p.Value
	}
	return got
}

// differs says how a state differs from the one that is wanted; empty: in nothing.
func (s state) differs(want state) string {
	switch got := s.content; {
	case s.exists != want.exists:
		return fmt.Sprintf("exists: %v, with %d bytes", s.exists, len(got))
	case !bytes.Equal(got, want.content):
		at := 0
		for at < min(len(got), len(want.content)) && got[at] == want.content[at] {
			at++
		}
		return fmt.Sprintf("has %d bytes, want %d: at %d %.60q, want %.60q", len(got), len(want.content), at, got[at:], want.content[at:])
	case !maps.EqualFunc(s.xattrs, want.xattrs, bytes.Equal):
		return fmt.Sprintf("has xattrs %v, want %v", slices.Sorted(maps.Keys(s.xattrs)), slices.Sorted(maps.Keys(want.xattrs)))
	case !maps.EqualFunc(s.omap, want.omap, bytes.Equal):
		return fmt.Sprintf("has an omap of %v, want %v", slices.Sorted(maps.Keys(s.omap)), slices.Sorted(maps.Keys(want.omap)))
	}
	return ""
}

func (w *worker) verify(m *model) {
	if text := w.read(m).differs(m.state); text != "" {
		w.lost(m, "%s", text)
	}
}
