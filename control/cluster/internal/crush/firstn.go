package crush

import "slices"

// firstn chooses devices or buckets one after the other, from out[pos] on, and returns where
// it ended: a failure leaves no hole. parent is added to the number of each try.
func (w *Work) firstn(c choice, root *bucket, wanted int, out, leaves []int32, pos, room int, parent uint32) int {
	rep := pos
	if w.t.stable {
		rep = 0
	}
	for ; rep < wanted && room > 0 && w.budget >= 0; rep++ {
		w.budget--
		item, ok := w.replica(c, root, out, leaves, pos, room, uint32(rep)+parent)
		if ok {
			out[pos] = item
			pos++
			room--
		}
	}
	return pos
}

// replica descends from root until it finds an item that is neither taken nor out, at most
// c.tries times. Within a bucket it may try again without a new descent.
func (w *Work) replica(c choice, root *bucket, out, leaves []int32, pos, room int, number uint32) (int32, bool) {
	in, local := root, 0
	localTries, fallback := int(w.t.localTries), int(w.t.localFallback)
	for total := 0; w.budget >= 0; {
		w.budget--
		collided := false
		if n := len(in.items); n > 0 {
			var item int32
			r := number + uint32(total)
			if fallback > 0 && local >= n/2 && local > fallback {
				item = w.permuted(in, r)
			} else {
				item = w.choose(in, r, pos)
			}
			if item >= w.m.maxDevices {
				return 0, false
			}
			below := w.m.bucket(item)
			if below == nil && (item < 0 || c.kind != 0) {
				return 0, false
			}
			if below != nil && below.kind != c.kind {
				in = below
				continue
			}
			collided = slices.Contains(out[:pos], item)
			if !collided && w.accept(c, item, below, leaves, pos, room, r) {
				return item, true
			}
		}
		total++
		local++
		switch {
		case collided && local <= localTries, fallback > 0 && local <= len(in.items)+fallback:
		case total < c.tries:
			in, local = root, 0
		default:
			return 0, false
		}
	}
	return 0, false
}

// accept says whether an item can be had: a device that is in, and for chooseleaf a bucket with
// one below it.
func (w *Work) accept(c choice, item int32, below *bucket, leaves []int32, pos, room int, r uint32) bool {
	if c.leaf {
		if below == nil {
			leaves[pos] = item
		} else {
			wanted, parent := pos+1, uint32(0)
			if w.t.stable {
				wanted = 1
			}
			if w.t.varyR > 0 {
				parent = r >> (w.t.varyR - 1)
			}
			// A device below is compared with the leaves so far, not with the buckets.
			leaf := choice{tries: c.leafTries}
			if w.firstn(leaf, below, wanted, leaves, nil, pos, room, parent) <= pos {
				return false
			}
		}
	}
	return c.kind != 0 || !w.isOut(item)
}
