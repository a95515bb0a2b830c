package crush

import "math/bits"

// Algorithms of buckets.
const (
	algUniform = 1
	algList    = 2
	algTree    = 3
	algStraw   = 4
	algStraw2  = 5
)

// Numbers in the place of an item.
const (
	None  = 0x7fffffff // there is none
	undef = 0x7ffffffe // not chosen yet
)

// bucket is an inner node of the hierarchy. Its id is negative.
type bucket struct {
	id    int32
	kind  int32 // its type: host, rack, ...; devices have type 0
	alg   uint8
	items []int32
	// weights and sums are of list; nodes of tree: weights of its nodes; straws of straw.
	weights, sums, nodes, straws []uint32
	straw2                       []straw
	// args replace straw2 in the sets of choose_args that have this bucket.
	args []choosing
}

// choosing is the entry of a bucket in one set of choose_args.
type choosing struct {
	set       int32
	positions [][]straw // by position; the last one is for all behind it
}

// choose takes one item of b, which is not empty. position is that of the result.
func (w *Work) choose(b *bucket, r uint32, position int) int32 {
	w.budget -= len(b.items)
	switch b.alg {
	case algUniform:
		return w.permuted(b, r)
	case algList:
		return b.chooseList(w.x, r)
	case algTree:
		return b.chooseTree(w.x, r)
	case algStraw:
		return b.chooseStraw(w.x, r)
	}
	straws := b.straw2
	if w.set >= 0 {
		w.budget -= len(b.args)
		for i := range b.args {
			if a := &b.args[i]; a.set == w.set {
				straws = a.positions[min(position, len(a.positions)-1)]
				break
			}
		}
	}
	return b.items[w.draw(straws, r)]
}

// straw is an item of a straw2 bucket as it takes part in a draw.
type straw struct {
	id     uint32 // the input of the hash
	weight uint32 // 0: it is never drawn
}

// draw is straw2: the item whose draw, divided by its weight, is the lowest; the first of several.
func (w *Work) draw(straws []straw, r uint32) int {
	last := len(straws) - 1
	if last == 0 {
		return 0 // as many levels of small clusters
	}
	d := drawing{low: ^uint64(0)}
	for i := 0; i <= last; i += 2 {
		s, t := straws[i], straws[min(i+1, last)]
		u, v := hash3Twice(w.x, s.id, t.id, r)
		d.take(i, s.weight, u&0xffff)
		d.take(min(i+1, last), t.weight, v&0xffff)
	}
	return d.best
}

// drawing is the best item of a draw so far.
type drawing struct {
	best         int
	low          uint64 // its draw by its weight
	weight, high uint32 // its weight, and its hash up to ordered
}

// take takes an item with its weight and its hash. An item with a hash and a weight that are not
// above those of the best has no lower quotient: most items need no logarithm.
func (d *drawing) take(i int, weight, u uint32) {
	if u > d.high && weight != 0 || weight > d.weight {
		d.compare(i, weight, u)
	}
}

func (d *drawing) compare(i int, weight, u uint32) {
	n := drawOf(u)
	if over, least := bits.Mul64(d.low, uint64(weight)); over == 0 && n >= least {
		return // n / weight >= d.low
	}
	*d = drawing{i, n / uint64(weight), weight, min(u, ordered)}
}

// permuted is the item at place r of a permutation of b, which is made as far as it is needed.
func (w *Work) permuted(b *bucket, r uint32) int32 {
	n := len(b.items)
	if w.permutedBucket != b.id {
		w.permutedBucket, w.permutedTo = b.id, 0
		w.permutation = w.permutation[:0]
		for i := range n {
			w.permutation = append(w.permutation, int32(i))
		}
	}
	at := int(r % uint32(n))
	for ; w.permutedTo <= at; w.permutedTo++ {
		if k := w.permutedTo; k < n-1 {
			i := k + int(hash3(w.x, uint32(b.id), uint32(k))%uint32(n-k))
			w.permutation[k], w.permutation[i] = w.permutation[i], w.permutation[k]
		}
	}
	return b.items[w.permutation[at]]
}

func (b *bucket) chooseList(x, r uint32) int32 {
	for i := len(b.items) - 1; i >= 0; i-- {
		h := uint64(hash4(x, uint32(b.items[i]), r, uint32(b.id)) & 0xffff)
		if h*uint64(b.sums[i])>>16 < uint64(b.weights[i]) {
			return b.items[i]
		}
	}
	return b.items[0]
}

// chooseTree walks down from the root of a binary tree, whose leaves have odd numbers.
func (b *bucket) chooseTree(x, r uint32) int32 {
	node := uint32(len(b.nodes)) / 2
	for node&1 == 0 {
		t := uint64(hash4(x, node, r, uint32(b.id))) * uint64(b.nodes[node]) >> 32
		half := node & -node / 2
		if left := node - half; t < uint64(b.nodes[left]) {
			node = left
		} else {
			node += half
		}
	}
	if i := int(node / 2); i < len(b.items) {
		return b.items[i]
	}
	return None // the weights lead to a leaf without an item
}

func (b *bucket) chooseStraw(x, r uint32) int32 {
	best, high := 0, uint64(0)
	for i, item := range b.items {
		draw := uint64(hash3(x, uint32(item), r)&0xffff) * uint64(b.straws[i])
		if i == 0 || draw > high {
			best, high = i, draw
		}
	}
	return b.items[best]
}
