package osdmap

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// maxTable bounds the OSDs that a table has room for: 4 MiB of them. Placement groups of larger
// pools are computed each time.
const maxTable = 1 << 20

// table has the results of CRUSH for the groups of one pool. Maps share it as long as what
// it was computed from does not change. Any goroutine may use it: a row is written
// once, by the goroutine that claims it.
type table struct {
	key  tableKey
	rows atomic.Pointer[rows] // nil before the first use
}

// tableKey has the fields of a pool on which the results depend.
type tableKey struct {
	pool   int64
	pgpNum uint32
	size   uint8
	rule   uint8
	hashed bool
}

// rows has one state for each group, and room for its OSDs.
type rows struct {
	states []atomic.Uint32
	osds   []int32
}

// States of a row: nothing, or claimed, or these bits and the number of OSDs in the lowest byte.
const (
	rowEmpty   = 0
	rowClaimed = 1 << 8
	rowReady   = 1 << 9
	rowLeftOut = 1 << 10 // CRUSH left an OSD out for its weight
	rowCut     = 1 << 11 // CRUSH chose an OSD for which there was no room
)

// get copies a row to out. It is false if there is none.
func (t *table) get(row uint32, out []int32) ([]int32, bool) {
	if t == nil {
		return nil, false
	}
	r := t.rows.Load()
	if r == nil {
		return nil, false
	}
	state := r.states[row].Load()
	if state&rowReady == 0 {
		return nil, false
	}
	at := int(row) * int(t.key.size)
	return out[:copy(out, r.osds[at:at+int(state&0xff)])], true
}

// put fills a row, unless another goroutine does.
func (t *table) put(row uint32, osds []int32, leftOut, cut bool) {
	if t == nil {
		return
	}
	if t.rows.Load() == nil {
		t.rows.CompareAndSwap(nil, newRows(t.key))
	}
	r := t.rows.Load()
	if r.states[row].CompareAndSwap(rowEmpty, rowClaimed) {
		copy(r.osds[int(row)*int(t.key.size):], osds)
		state := uint32(rowReady | len(osds))
		if leftOut {
			state |= rowLeftOut
		}
		if cut {
			state |= rowCut
		}
		r.states[row].Store(state)
	}
}

func newRows(k tableKey) *rows {
	return &rows{make([]atomic.Uint32, k.pgpNum), make([]int32, int(k.pgpNum)*int(k.size))}
}

// newTables makes the tables of m: those of the map before, where nothing has changed that they depend
// on; or with the rows that a change of weights leaves valid.
func (m *Map) newTables(before *Map) map[int64]*table {
	var w *weighing
	if before != nil && before.crush == m.crush {
		w = weigh(before.osds.weights, m.osds.weights)
	}
	tables := make(map[int64]*table, len(m.pools))
	for id, p := range m.pools {
		k := tableKey{id, p.pgpNum, p.Size, p.rule, p.Flags&poolHashed != 0}
		if uint64(k.pgpNum)*uint64(max(k.size, 1)) > maxTable { // a row without OSDs takes memory, too
			continue
		}
		t := &table{key: k}
		if w != nil {
			if old := before.tables[id]; old != nil && old.key == k {
				t = w.carry(old)
			}
		}
		tables[id] = t
	}
	return tables
}

// weighing is the difference between the weights of two maps.
type weighing struct {
	before, after []uint32
	lower, higher bool // some weight is
}

func weigh(before, after []uint32) *weighing {
	w := &weighing{before: before, after: after}
	for osd := range max(len(before), len(after)) {
		c := w.compare(int32(osd))
		w.lower, w.higher = w.lower || c < 0, w.higher || c > 0
	}
	return w
}

// compare compares the weight of an OSD, as CRUSH sees it, to the one before.
func (w *weighing) compare(osd int32) int {
	at := func(weights []uint32) uint32 {
		if osd >= 0 && int(osd) < len(weights) {
			return min(weights[osd], wholeWeight)
		}
		return 0
	}
	return cmp.Compare(at(w.after), at(w.before))
}

// carry returns a table with the rows of another one that are still valid. A lower weight changes
// the groups of its OSD alone, but for those that were cut: it was left out before where it is not among them. A higher one
// changes only groups where some OSD was left out.
func (w *weighing) carry(old *table) *table {
	r := old.rows.Load()
	if !w.lower && !w.higher || r == nil {
		return old
	}
	size := int(old.key.size)
	next := newRows(old.key)
	for row := range r.states {
		state := r.states[row].Load()
		if state&rowReady == 0 || w.higher && state&rowLeftOut != 0 || w.lower && state&rowCut != 0 {
			continue
		}
		osds := r.osds[row*size : row*size+int(state&0xff)]
		if w.lower && slices.ContainsFunc(osds, func(osd int32) bool { return w.compare(osd) < 0 }) {
			continue
		}
		copy(next.osds[row*size:], osds)
		next.states[row].Store(state)
	}
	t := &table{key: old.key}
	t.rows.Store(next)
	return t
}
