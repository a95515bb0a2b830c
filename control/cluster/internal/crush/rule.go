package crush

// MaxResult is the most devices that one mapping has.
const MaxResult = 255

// budget bounds one mapping: so many items are looked at. Maps of real clusters need a
// thousandth of it. A map whose buckets contain themselves, or that tries for ever, ends here.
const budget = 1 << 22

// Types of rules that have an interpreter of their own.
const (
	ruleMSRFirstn = 4
	ruleMSRIndep  = 5
)

// Operations of steps.
const (
	opTake             = 1
	opChooseFirstn     = 2
	opChooseIndep      = 3
	opEmit             = 4
	opLeafFirstn       = 6
	opLeafIndep        = 7
	opSetTries         = 8
	opSetLeafTries     = 9
	opSetLocalTries    = 10
	opSetLocalFallback = 11
	opSetVaryR         = 12
	opSetStable        = 13
	opSetMSRDescents   = 14
	opSetMSRCollisions = 15
	opChooseMSR        = 16
)

type rule struct {
	kind  uint8
	steps []step
}

type step struct {
	op         uint32
	arg1, arg2 int32
}

// tunables change how a choice is made and repeated.
type tunables struct {
	localTries, localFallback, totalTries uint32
	descendOnce                           bool
	varyR                                 uint32
	stable                                bool
	msrDescents, msrCollisions            uint32
}

// legacy are the tunables of a map that has none.
var legacy = tunables{localTries: 2, localFallback: 5, totalTries: 19, msrDescents: 100, msrCollisions: 100}

// Map is a CRUSH map. It does not change, and any goroutine may use it.
type Map struct {
	buckets    []*bucket // bucket -1-i is at i; nil: there is none
	rules      []*rule   // nil: there is none
	types      map[int32]string
	names      map[int32]string // of buckets and devices
	sets       map[int64]int32
	maxDevices int32
	tunables   tunables
	budget     int
}

// Work is the memory that one mapping at a time needs. The zero Work is ready, for any map.
type Work struct {
	m       *Map
	x       uint32
	set     int32 // of choose_args; -1: none
	weights []uint32
	t       tunables
	// tries are those of choose, leafTries those of what chooseleaf does below; 0: not set.
	tries, leafTries int
	budget           int
	tested           bool // a device was left out by its weight
	cut              bool // a device was chosen for which there is no room

	permutation    []int32
	permutedBucket int32 // of which it is; 0: of none
	permutedTo     int   // how far it is made

	current, next, leaves [MaxResult]int32
	msr                   msr
}

// LeftOut says whether the last mapping left out a device for its weight. If it did not,
// a higher weight of any device does not change it.
func (w *Work) LeftOut() bool { return w.tested }

// Cut says whether the last mapping chose a device for which there was no room: others made way for that one, so that a lower
// weight of it can change the mapping, which does not have it.
func (w *Work) Cut() bool { return w.cut }

// Do maps x by a rule, fills out with devices, and returns how many there are. Where a rule
// keeps positions, one without a device is None. At most MaxResult are chosen.
//
// weights has one weight for each device, in 1/0x10000; a device behind its end counts as 0.
// key selects the set of choose_args, or that with key -1 if there is none. A rule that does
// not exist, and a mapping that exceeds its budget, have no devices.
func (m *Map) Do(w *Work, number int, x uint32, key int64, weights []uint32, out []int32) int {
	w.tested, w.cut = false, false
	if number < 0 || number >= len(m.rules) || m.rules[number] == nil || len(out) == 0 {
		return 0
	}
	w.m, w.x, w.weights, w.t, w.set = m, x, weights, m.tunables, -1
	w.budget, w.permutedBucket = m.budget, 0
	w.tries, w.leafTries = int(w.t.totalTries)+1, 0
	for _, k := range [2]int64{-1, key} {
		if set, ok := m.sets[k]; ok {
			w.set = set
		}
	}
	out = out[:min(len(out), MaxResult)]
	r, n := m.rules[number], 0
	if r.kind == ruleMSRFirstn || r.kind == ruleMSRIndep {
		n = w.runMSR(r, out)
	} else {
		n = w.run(r.steps, out)
	}
	w.m, w.weights = nil, nil
	if w.budget < 0 {
		w.tested = true // a device that it did not look at may have a weight
		return 0
	}
	return n
}

// run carries out the steps of a rule.
func (w *Work) run(steps []step, out []int32) int {
	count, chosen := 0, 0 // of out, of w.current
	for _, s := range steps {
		if w.budget--; w.budget < 0 {
			break
		}
		switch s.op {
		case opTake:
			if w.m.bucket(s.arg1) != nil || s.arg1 >= 0 && s.arg1 < w.m.maxDevices {
				w.current[0], chosen = s.arg1, 1
			}
		case opChooseFirstn, opChooseIndep, opLeafFirstn, opLeafIndep:
			chosen = w.choice(s, chosen, len(out))
		case opEmit:
			n := copy(out[count:], w.current[:chosen])
			w.cut = w.cut || n < chosen
			count, chosen = count+n, 0
		default:
			w.setting(s)
		}
	}
	return count
}

// setting carries out a step that sets a tunable for the steps behind it.
func (w *Work) setting(s step) {
	if s.arg1 < 0 || s.arg1 == 0 && (s.op == opSetTries || s.op == opSetLeafTries) {
		return
	}
	switch s.op {
	case opSetTries:
		w.tries = int(s.arg1)
	case opSetLeafTries:
		w.leafTries = int(s.arg1)
	case opSetLocalTries:
		w.t.localTries = uint32(s.arg1)
	case opSetLocalFallback:
		w.t.localFallback = uint32(s.arg1)
	case opSetVaryR:
		w.t.varyR = uint32(s.arg1)
	case opSetStable:
		w.t.stable = s.arg1 > 0
	}
}

// choice is a choose or chooseleaf step: from each of the chosen buckets it chooses s.arg1 items
// of type s.arg2. It returns how many w.current then has.
func (w *Work) choice(s step, chosen, most int) int {
	c := choice{kind: s.arg2, tries: w.tries, leaf: s.op == opLeafFirstn || s.op == opLeafIndep}
	firstn := s.op == opChooseFirstn || s.op == opLeafFirstn
	switch {
	case w.leafTries > 0:
		c.leafTries = w.leafTries
	case !firstn || w.t.descendOnce:
		c.leafTries = 1
	default:
		c.leafTries = w.tries
	}
	size := 0
	for _, id := range w.current[:chosen] {
		n := int(s.arg1)
		if n <= 0 {
			n += most
		}
		b := w.m.bucket(id)
		if n <= 0 || b == nil {
			continue
		}
		// Positions, and what an item collides with, begin anew with each bucket.
		out, leaves, room := w.next[size:], w.leaves[size:], most-size
		if firstn {
			size += w.firstn(c, b, n, out, leaves, 0, room, 0)
		} else {
			n, all := min(n, room), n
			w.indep(c, b, n, all, out, leaves, 0, 0)
			size += n
		}
	}
	if c.leaf {
		copy(w.current[:], w.leaves[:size])
	} else {
		copy(w.current[:], w.next[:size])
	}
	return size
}

// choice has the parameters of a choose step, or of the descent to a leaf in it.
type choice struct {
	kind             int32 // type of the items that are wanted
	tries, leafTries int
	leaf             bool // chooseleaf: also a device below each item
}

// bucket is nil if there is none of this id.
func (m *Map) bucket(id int32) *bucket {
	if i := -1 - int(id); i >= 0 && i < len(m.buckets) {
		return m.buckets[i]
	}
	return nil
}

// isOut says whether the weight of a device leaves it out of this mapping.
func (w *Work) isOut(device int32) bool {
	if device < 0 {
		return true // a bucket that says it is a device
	}
	if int(device) < len(w.weights) {
		weight := w.weights[device]
		if weight >= 0x10000 || Hash2(w.x, uint32(device))&0xffff < weight {
			return false
		}
	}
	w.tested = true
	return true
}
