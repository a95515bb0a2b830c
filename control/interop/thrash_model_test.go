package interop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// worker changes objects that nobody else does, and knows what must be there.
type worker struct {
	*thrashed
	*rand.Rand
	objects []*model
	done    int
	slowest time.Duration
	mark    int // of the last data
}

// model is what must be there of an object.
type model struct {
	rados.Object
	exists  bool
	content []byte
	xattrs  map[string][]byte
	omap    map[string][]byte
	history []string
}

func newWorker(x *thrashed, seed uint64, i int) *worker {
	w := &worker{thrashed: x, Rand: rand.New(rand.NewPCG(seed, uint64(i+1)))}
	for n := range 8 {
		p := x.pools[n%len(x.pools)].WithNamespace(pickOf(w.Rand, "", "space"))
		w.objects = append(w.objects, &model{Object: p.Object(fmt.Sprintf("of worker %d: %d", i, n)), xattrs: map[string][]byte{}, omap: map[string][]byte{}})
	}
	return w
}

// did remembers what happened to an object.
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
			w.remove(m)
		default:
			w.change(m)
		}
	}
}

// operate carries out an operation, and returns false if that ends the test.
func (w *worker) operate(m *model, what string, op rados.Op, allowed error) bool {
	m.did("%s", what)
	began := time.Now()
	_, err := m.Operate(w.ctx, op)
	w.done++
	w.slowest = max(w.slowest, time.Since(began))
	m.did("... after %v: %v", time.Since(began).Round(time.Millisecond), err)
	if err != nil && (allowed == nil || !errors.Is(err, allowed)) {
		w.lost(m, "%s: %v", what, err)
		return false
	}
	return true
}

// data is like no other.
func (w *worker) data() []byte {
	w.mark++
	return bytes.Repeat(fmt.Appendf(nil, "<%d>", w.mark), 1+w.Rand.IntN(300))
}

// appendMany has several appends under way at a time. Their order is that of their beginnings.
func (w *worker) appendMany(m *model) {
	n := 1 + w.Rand.IntN(5)
	done := make(chan error, n)
	for range n {
		var op rados.WriteOp
		data := w.data()
		op.Append(data)
		m.did("append %.9s... of %d", data, len(data))
		if err := m.Start(w.ctx, &op, func(_ uint64, err error) { done <- err }); err != nil {
			w.lost(m, "append: %v", err)
			return
		}
		m.exists, m.content = true, append(m.content, data...)
	}
	began := time.Now()
	for range n {
		if err := <-done; err != nil {
			w.lost(m, "append: %v", err)
			return
		}
	}
	w.done += n
	w.slowest = max(w.slowest, time.Since(began))
	m.did("... %d appends after %v", n, time.Since(began).Round(time.Millisecond))
}

func (w *worker) remove(m *model) {
	var op rados.WriteOp
	op.Remove()
	var allowed error
	if !m.exists {
		allowed = fs.ErrNotExist
	}
	if w.operate(m, "remove", &op, allowed) {
		m.exists, m.content = false, nil
		clear(m.xattrs)
		clear(m.omap)
	}
}

// change has several things happen to an object at once.
func (w *worker) change(m *model) {
	var op rados.WriteOp
	op.Create(false)
	m.exists = true
	what := []string{}
	for range 1 + w.Rand.IntN(4) {
		data, key := w.data(), fmt.Sprint("key", w.Rand.IntN(8))
		did := fmt.Sprintf("%.9s... of %d", data, len(data))
		switch w.Rand.IntN(7) {
		case 0:
			did = "write all " + did
			op.WriteFull(data)
			m.content = bytes.Clone(data)
		case 1:
			at := w.Rand.IntN(len(m.content) + 100)
			did = fmt.Sprintf("write at %d %s", at, did)
			op.Write(uint64(at), data)
			m.content = append(m.content, make([]byte, max(0, at+len(data)-len(m.content)))...)
			copy(m.content[at:], data)
		case 2:
			did = "append " + did
			op.Append(data)
			m.content = append(m.content, data...)
		case 3:
			size := w.Rand.IntN(len(m.content) + 100)
			did = fmt.Sprint("truncate at ", size)
			op.Truncate(uint64(size))
			m.content = append(m.content, make([]byte, max(0, size-len(m.content)))...)[:size]
		case 4:
			did = "set xattr " + key
			op.SetXattr(key, data)
			m.xattrs[key] = data
		case 5:
			did = "set omap " + key
			op.SetOmap(map[string][]byte{key: data})
			m.omap[key] = data
		case 6:
			did = "remove omap " + key
			op.RemoveOmap(key)
			delete(m.omap, key)
		}
		what = append(what, did)
	}
	w.operate(m, strings.Join(what, ", "), &op, nil)
}

// verify reads all of an object at once.
func (w *worker) verify(m *model) {
	var op rados.ReadOp
	content, xattrs, omap := op.Read(0, 0), op.Xattrs(), op.Omap("", "", 100)
	if !m.exists {
		if w.operate(m, "read", &op, fs.ErrNotExist) && content.Err == nil {
			w.lost(m, "is there again, with %d bytes", len(content.Value))
		}
		return
	}
	if !w.operate(m, "read", &op, nil) {
		return
	}
	values := map[string][]byte{}
	for _, p := range omap.Value.Pairs {
		values[p.Key] = p.Value
	}
	switch got := content.Value; {
	case !bytes.Equal(got, m.content):
		at := 0
		for at < min(len(got), len(m.content)) && got[at] == m.content[at] {
			at++
		}
		w.lost(m, "has %d bytes, want %d: at %d %.60q, want %.60q", len(got), len(m.content), at, got[at:], m.content[at:])
	case !maps.EqualFunc(xattrs.Value, m.xattrs, bytes.Equal):
		w.lost(m, "has xattrs %v, want %v", slices.Sorted(maps.Keys(xattrs.Value)), slices.Sorted(maps.Keys(m.xattrs)))
	case !maps.EqualFunc(values, m.omap, bytes.Equal):
		w.lost(m, "has an omap of %v, want %v", slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(m.omap)))
	}
}

func (w *worker) verifyAll() {
	for _, m := range w.objects {
		w.verify(m)
	}
}
