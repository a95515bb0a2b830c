package control

import (
	"cmp"
	"slices"
)

// callTable finds calls by their transaction ids, and has no memory per call. The
// ids that a messenger chooses follow each other, so that their lowest bits do for a
// hash.
type callTable struct {
	buckets []*Request // their number is a power of two
	n       int
}

func (t *callTable) bucket(tid uint64) **Request { return &t.buckets[tid&uint64(len(t.buckets)-1)] }

func (t *callTable) get(tid uint64) *Request {
	if t.n == 0 {
		return nil
	}
	r := *t.bucket(tid)
	for r != nil && r.tid != tid {
		r = r.next
	}
	return r
}

// add adds a call, unless there is one of the same id.
func (t *callTable) add(r *Request) bool {
	if t.get(r.tid) != nil {
		return false
	}
	if t.n == len(t.buckets) {
		all := t.all()
		t.buckets = make([]*Request, max(2*len(t.buckets), 8))
		for _, o := range all {
			t.push(o)
		}
	}
	t.push(r)
	t.n++
	return true
}

func (t *callTable) push(r *Request) {
	b := t.bucket(r.tid)
	r.next, *b = *b, r
}

// remove removes a call that is there.
func (t *callTable) remove(r *Request) {
	for at := t.bucket(r.tid); *at != nil; at = &(*at).next {
		if *at == r {
			*at, r.next = r.next, nil
			t.n--
			return
		}
	}
}

// all are the calls by their ids.
func (t *callTable) all() []*Request {
	list := make([]*Request, 0, t.n)
	for _, r := range t.buckets {
		for ; r != nil; r = r.next {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *Request) int { return cmp.Compare(a.tid, b.tid) })
	return list
}
