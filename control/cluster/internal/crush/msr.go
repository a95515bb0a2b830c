package crush

import "slices"

// maxMSRSteps is the most choose steps of one block; real rules have as many as the hierarchy
// has levels.
const maxMSRSteps = 16

// msr is the state of a rule that tries again across its steps. A block of such a rule is take,
// choose steps and emit. Each choose step divides its range of positions into strides, one for
// each bucket that it chooses; the next step divides each stride again.
type msr struct {
	steps      []step // the choose steps of the block
	firstn     bool
	collisions int
	out        []int32
	count      int // of devices in out
	try        uint32
	// used has, for each step, the items of the positions: what others collide with.
	used [maxMSRSteps][MaxResult]int32
}

// runMSR carries out the blocks of a rule. A rule of another form has no devices.
func (w *Work) runMSR(r *rule, out []int32) int {
	q := &w.msr
	descents := int(w.t.msrDescents)
	q.firstn, q.out, q.count, q.collisions = r.kind == ruleMSRFirstn, out, 0, int(w.t.msrCollisions)
	defer func() { q.steps, q.out = nil, nil }()
	steps := r.steps
	for ; len(steps) > 0 && (steps[0].op == opSetMSRDescents || steps[0].op == opSetMSRCollisions); steps = steps[1:] {
		if steps[0].op == opSetMSRDescents {
			descents = int(steps[0].arg1)
		} else {
			q.collisions = int(steps[0].arg1)
		}
	}
	for i := range out {
		out[i] = None
	}
	for start := 0; len(steps) > 0; {
		root, total := w.block(&steps)
		if root == nil {
			return 0
		}
		end := min(start+total, len(out))
		limit := q.count + end - start
		for i := range q.steps {
			for k := range out {
				q.used[i][k] = undef
			}
		}
		for try := 0; try < descents && q.count < limit && w.budget >= 0; try++ {
			q.try = uint32(try)
			w.chooseMSR(root, total, start, end, 0)
		}
		start = end
	}
	if q.firstn {
		return q.count
	}
	return len(out)
}

// block takes one block off the steps, and returns its bucket and for how many devices it is.
// The bucket is nil if this is no block.
func (w *Work) block(steps *[]step) (root *bucket, total int) {
	s := *steps
	if s[0].op == opTake {
		root = w.m.bucket(s[0].arg1)
	}
	n := 1
	for total = 1; n < len(s) && s[n].op == opChooseMSR; n++ {
		total *= w.strides(s[n])
		if total <= 0 || total > 1<<30 {
			return nil, 0
		}
	}
	if n == len(s) || s[n].op != opEmit || n == 1 || n-1 > maxMSRSteps {
		return nil, 0
	}
	w.msr.steps, *steps = s[1:n], s[n+1:]
	return root, total
}

// strides is how many buckets a step chooses; 0 stands for one for each position.
func (w *Work) strides(s step) int {
	if s.arg1 == 0 {
		return len(w.msr.out)
	}
	return int(s.arg1)
}

// chooseMSR fills what is free of the positions from start to end, from the items of b, by the
// choose step of this number and those behind it. total is for how many positions b would
// be enough. It returns how many devices it has found.
func (w *Work) chooseMSR(b *bucket, total, start, end, number int) int {
	q := &w.msr
	s := q.steps[number]
	length := total / w.strides(s)
	last := number == len(q.steps)-1
	var undo [MaxResult]int // the positions of buckets without a device
	found, undos := 0, 0
	for from, i := start, 0; from < end && w.budget >= 0; from, i = from+length, i+1 {
		w.budget--
		to := min(from+length, end)
		if !slices.Contains(q.used[len(q.steps)-1][from:to], undef) {
			continue
		}
		item, ok := w.candidate(b, s.arg2, number, start, end, from, to, uint32(i))
		switch {
		case !ok, last != (s.arg2 == 0), last && length != 1:
		case last:
			if w.isOut(item) {
				continue
			}
			q.used[number][from] = item
			if q.firstn {
				q.out[q.count] = item
			} else {
				q.out[from] = item
			}
			q.count++
			found++
		default:
			below := w.m.bucket(item)
			if below == nil {
				continue
			}
			n := w.chooseMSR(below, length, from, to, number+1)
			if at := w.use(number, from, to, item); at >= 0 && n == 0 {
				undo[undos] = at
				undos++
			}
			found += n
		}
	}
	// A bucket without a device collides with others in this try, and is free in the next.
	for _, at := range undo[:undos] {
		q.used[number][at] = undef
	}
	return found
}

// use notes an item among those of a stride, and says at which position; negative: it is there, or none is free.
func (w *Work) use(number, from, to int, item int32) int {
	for k := from; k < to; k++ {
		switch w.msr.used[number][k] {
		case item:
			return -1
		case undef:
			w.msr.used[number][k] = item
			return k
		}
	}
	return -1
}

// candidate descends to an item of the wanted type, or to a device, that no other stride uses.
func (w *Work) candidate(b *bucket, kind int32, number, start, end, from, to int, stride uint32) (int32, bool) {
	for local := 0; local < w.msr.collisions && w.budget >= 0; local++ {
		r := (w.msr.try*uint32(len(w.msr.out))+stride)<<16 + uint32(local)
		item, ok := w.descend(b, kind, r, int(stride))
		if !ok {
			return 0, false
		}
		at := slices.Index(w.msr.used[number][start:end], item)
		if at < 0 || start+at >= from && start+at < to {
			return item, true
		}
	}
	return 0, false
}

func (w *Work) descend(in *bucket, kind int32, r uint32, position int) (int32, bool) {
	for w.budget >= 0 && len(in.items) > 0 {
		w.budget--
		item := w.choose(in, r, position)
		if item >= 0 {
			return item, item < w.m.maxDevices
		}
		if in = w.m.bucket(item); in == nil {
			return 0, false
		}
		if in.kind == kind {
			return item, true
		}
	}
	return 0, false
}
