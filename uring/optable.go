package uring

import "math"

// opTable tracks operations in flight by slot and generation. A slot's generation changes when
// its operation ends, so that a late answer is never taken for the slot's next operation. It
// also chains the operations of each descriptor, for Close. It allocates memory only while it
// grows to the largest number of operations in flight.
type opTable struct {
	slots    []operation
	heads    []int32 // by descriptor: slot + 1 of its newest operation, 0: none
	free     int32   // slot + 1 of the first free one, 0: none
	inFlight int
}

// operation is one slot.
type operation struct {
	user uint64
	vec  *Vec  // KindSend, KindRead, KindWrite
	sent int   // of vec: bytes so far
	res  int32 // KindSend: result of a zero-copy send with opEnded
	debt int32 // KindSend: notifications still to come
	sock Socket
	gen  uint32
	next int32 // slot + 1: next free slot, or next operation of the descriptor
	prev int32 // slot + 1: previous operation of the descriptor
	kind Kind
	bits opBits
	file fileRequest // KindRead, KindWrite, KindSync, KindAllocate
}

// opBits are states of an operation that the driver needs to know.
type opBits uint16

const (
	opLive     opBits = 1 << iota // the slot is in use
	opQuiet                       // no completion was asked for a success
	opZero                        // zero-copy send
	opEnded                       // zero-copy send: result known, notifications to come
	opCancel                      // cancelled: do not resubmit
	opCopied                      // the kernel said that it copied
	opThenSync                    // KindWrite: a sync of its range follows
	opSyncing                     // KindWrite: it is under way
	opParked                      // KindRead and so on: not given to the kernel yet
	opFixed                       // KindRead, KindWrite: the request under way is on registered memory
	opPlain                       // KindRead, KindWrite: not to be tried so again
)

const maxSlots = math.MaxInt32 - 1

// add takes a slot for a new operation on s, which is open.
func (t *opTable) add(kind Kind, s Socket, user uint64, vec *Vec) (Op, bool) {
	i := t.free - 1
	if i >= 0 {
		t.free = t.slots[i].next
	} else {
		if len(t.slots) >= maxSlots {
			return 0, false
		}
		i = int32(len(t.slots))
		t.slots = append(t.slots, operation{gen: 1})
	}
	o := &t.slots[i]
	o.user, o.vec, o.sock, o.kind, o.bits = user, vec, s, kind, opLive
	o.sent, o.res, o.debt = 0, 0, 0
	t.link(i, o)
	t.inFlight++
	return Op(uint32(i)) | Op(o.gen)<<32, true
}

// get returns the operation, or nil if it has ended. The pointer is good until
// the next add.
func (t *opTable) get(op Op) *operation {
	i := uint32(op)
	if uint64(i) >= uint64(len(t.slots)) {
		return nil
	}
	o := &t.slots[i]
	if o.bits&opLive == 0 || o.gen != uint32(op>>32) {
		return nil
	}
	return o
}

// end frees the slot; op is stale from now on. Only for an op that get knows.
func (t *opTable) end(op Op) {
	i := int32(uint32(op))
	o := &t.slots[i]
	t.unlink(o)
	o.vec, o.bits, o.kind, o.file.job = nil, 0, KindNone, nil
	o.gen++
	if o.gen == 0 { // the zero Op is none
		o.gen = 1
	}
	o.next = t.free
	t.free = i + 1
	t.inFlight--
}

// first and after walk the operations of descriptor fd, newest first. Ending
// the one just visited needs its successor taken before.
func (t *opTable) first(fd int) Op {
	if fd < 0 || fd >= len(t.heads) {
		return 0
	}
	return t.name(t.heads[fd])
}

func (t *opTable) after(op Op) Op {
	o := t.get(op)
	if o == nil {
		return 0
	}
	return t.name(o.next)
}

// live walks all operations in flight: the first one in a slot not below from,
// and the slot to go on with.
func (t *opTable) live(from int) (Op, int) {
	for i := from; i < len(t.slots); i++ {
		if t.slots[i].bits&opLive != 0 {
			return t.name(int32(i) + 1), i + 1
		}
	}
	return 0, len(t.slots)
}

func (t *opTable) name(slot int32) Op {
	if slot == 0 {
		return 0
	}
	return Op(uint32(slot-1)) | Op(t.slots[slot-1].gen)<<32
}

func (t *opTable) link(i int32, o *operation) {
	fd := o.sock.FD()
	o.next, o.prev = 0, 0
	for fd >= len(t.heads) {
		t.heads = append(t.heads, 0)
	}
	if head := t.heads[fd]; head != 0 {
		o.next = head
		t.slots[head-1].prev = i + 1
	}
	t.heads[fd] = i + 1
}

func (t *opTable) unlink(o *operation) {
	fd := o.sock.FD()
	if o.next != 0 {
		t.slots[o.next-1].prev = o.prev
	}
	if o.prev != 0 {
		t.slots[o.prev-1].next = o.next
	} else {
		t.heads[fd] = o.next
	}
}
