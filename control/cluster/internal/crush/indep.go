package crush

import "slices"

// indep chooses n items for fixed positions, out[first] and those behind it: one that fails
// leaves a hole, None, and moves no other. wanted is how many the rule asks for.
func (w *Work) indep(c choice, root *bucket, n, wanted int, out, leaves []int32, first int, parent uint32) {
	end := first + n
	for i := first; i < end; i++ {
		out[i] = undef
		if leaves != nil {
			leaves[i] = undef
		}
	}
	for total := 0; n > 0 && total < c.tries && w.budget >= 0; total++ {
		w.budget--
		for rep := first; rep < end; rep++ {
			if out[rep] == undef && w.place(c, root, wanted, out[:end], leaves, first, rep, uint32(total), parent) {
				n--
			}
		}
	}
	for i := first; i < end; i++ {
		if out[i] == undef {
			out[i] = None
		}
		if leaves != nil && leaves[i] == undef {
			leaves[i] = None
		}
	}
}

// place tries once to fill out[rep]. It says whether that is decided: by an item, or by None
// where the hierarchy leads to a device too early.
func (w *Work) place(
	c choice, root *bucket, wanted int, out, leaves []int32, first, rep int, total, parent uint32,
) bool {
	in := root
	for w.budget >= 0 {
		w.budget--
		if len(in.items) == 0 {
			return false
		}
		stride := uint32(wanted)
		if in.alg == algUniform && len(in.items)%wanted == 0 {
			stride++ // a permutation would come around to the same items
		}
		r := uint32(rep) + parent + total*stride
		item := w.choose(in, r, first)
		below := w.m.bucket(item)
		if item >= w.m.maxDevices || below == nil && (item < 0 || c.kind != 0) {
			out[rep] = None
			if leaves != nil {
				leaves[rep] = None
			}
			return true
		}
		if below != nil && below.kind != c.kind {
			in = below
			continue
		}
		if slices.Contains(out[first:], item) {
			return false
		}
		if c.leaf {
			if below == nil {
				leaves[rep] = item
			} else {
				leaf := choice{tries: c.leafTries}
				w.indep(leaf, below, 1, wanted, leaves, nil, rep, r)
				if leaves[rep] == None {
					return false
				}
			}
		}
		if c.kind == 0 && w.isOut(item) {
			return false
		}
		out[rep] = item
		return true
	}
	return false
}
