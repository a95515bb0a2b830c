package control

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// calls are those that are under way on one connection.
type calls struct {
	limit int64        // 0: none
	n     atomic.Int64 // under way, those included that the core has not seen yet

	waiting atomic.Bool // somebody waits for n to fall
	mu      sync.Mutex
	free    chan struct{} // closed when n has fallen; guarded by mu

	// Owner: the core of the connection; on the connection to ourselves the lock.
	lock      sync.Mutex
	table     callTable
	next, end uint64 // transaction ids to give out: those behind next, up to end
}

// enter counts one call more, or says that there are too many.
func (k *calls) enter() error {
	for {
		n := k.n.Load()
		if k.limit > 0 && n >= k.limit {
			return ErrTooManyCalls
		}
		if k.n.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (k *calls) leave() {
	k.n.Add(-1)
	if k.waiting.Load() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.free != nil {
			close(k.free)
			k.free = nil
		}
		k.waiting.Store(false)
	}
}

// room returns a channel that closes once a call has ended.
func (k *calls) room() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.free == nil {
		k.free = make(chan struct{})
	}
	k.waiting.Store(true)
	return k.free
}

// tidBlock is how many transaction ids a connection takes at once from those of the
// messenger, so that connections do not share a counter for each call.
const tidBlock = 1 << 10

// name gives a request its transaction id; last is the last one that the connections of
// the messenger have taken. The ids of a messenger begin at a random number, so that they
// differ from those that its peers give to their own requests.
func (k *calls) name(r *Request, last *atomic.Uint64) {
	for r.tid = r.TID; r.tid == 0 || r.TID == 0 && k.table.get(r.tid) != nil; r.tid = k.next {
		if k.next == k.end {
			k.end = last.Add(tidBlock)
			k.next = k.end - tidBlock
		}
		k.next++
	}
	r.Message.TID = r.tid
}

// answered gives a message to the call that waits for it. On the core.
func (k *calls) answered(m *Message) bool {
	if k.table.n == 0 {
		return false
	}
	r := k.table.get(m.TID)
	if r == nil || r.queued { // nobody can answer what was not sent
		return false
	}
	k.table.remove(r)
	return r.finish(m, nil)
}

// drop takes a call out of the table, and its message out of the queue if it is
// there still. On the core.
func (r *Request) drop() {
	r.conn.calls.table.remove(r)
	if r.queued {
		r.conn.h.Withdraw(r.Message)
	}
}

// finish ends a call that is in the table no more. It says whether somebody still
// waited for it.
func (r *Request) finish(reply *Message, err error) bool {
	r.taken = false
	r.freeBuffer()
	done, w := r.Done, r.waiting
	r.conn.calls.leave()
	r.state.Add(1)
	if w != nil && !w.claim() {
		return false
	}
	r.ended(reply, err)
	done(r, reply, err)
	return true
}

// postedByRequest is a request whose buffer is posted.
type postedByRequest Request

// Used implements dataplane.PostingUser: the reply ends the request.
func (*postedByRequest) Used() {}

// postBuffer posts the buffer of a request that is written and waits for its reply. A
// Posting with the same id goes before it. On the core.
func (r *Request) postBuffer() {
	c := r.conn
	if len(r.Buffer) == 0 || c.calls.table.get(r.tid) != r {
		return
	}
	r.posted = dataplane.Posting{TID: r.tid, Buffer: r.Buffer, User: (*postedByRequest)(r)}
	_ = c.h.AddPosting(&r.posted) // the reply comes into memory of ours then
}

// freeBuffer takes the buffer of a request back, before Done. On the core.
func (r *Request) freeBuffer() {
	if r.posted.TID != 0 {
		h := r.conn.h
		h.RemovePosting(h.Core(), &r.posted)
		r.posted = dataplane.Posting{}
	}
}

// waitingCall is a Call.
type waitingCall struct {
	Request
	claimed atomic.Bool // its outcome is decided: by the core, or by its caller, who stops waiting
	done    chan callResult
}

type callResult struct {
	reply *Message
	err   error
}

// claim decides about the outcome, unless somebody has done so before: then it is false.
func (w *waitingCall) claim() bool { return w.claimed.CompareAndSwap(false, true) }

// deliver is Done of a Call.
func (r *Request) deliver(reply *Message, err error) {
	if reply != nil {
		reply.Retain()
	}
	r.waiting.done <- callResult{reply, err}
}

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
