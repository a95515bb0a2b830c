package capture

import (
	"container/list"
	"net/netip"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/trace"
)

const (
	// maxConns bounds the number of TCP connections at a time.
	maxConns = 16 << 10
	// maxEarly and maxEarlyBytes bound the segments of one direction that wait for earlier
	// bytes.
	maxEarly      = 1 << 10
	maxEarlyBytes = 4 << 20
	// maxJump is the largest distance of a segment from the last one; segments beyond it belong
	// to another connection.
	maxJump = 1 << 30
)

// Handler gets the streams of one connection, as [trace.Streams] does.
type Handler interface {
	// Data has the next bytes of a direction, valid during the call.
	Data(at time.Time, from trace.Side, p []byte)
	// Gap says that n bytes of a direction were not recorded.
	Gap(at time.Time, from trace.Side, n uint64)
	// End is the last call. It says in words why the connection has ended.
	End(at time.Time, why string)
}

// Assembler puts segments together to streams.
type Assembler struct {
	begin func(at time.Time, c trace.TCP) Handler
	conns map[pair]*stream
	order list.List // of conns as they began, the keys
	last  time.Time
}

// pair names a connection, the smaller address first.
type pair struct{ a, b netip.AddrPort }

type stream struct {
	trace.TCP
	at   *list.Element // in the order
	h    Handler
	dirs [2]direction // of the connector, of the acceptor
}

func (st *stream) sender(s Segment) trace.Side {
	if s.Src == st.Acceptor && s.Dst == st.Connector {
		return trace.Acceptor
	}
	return trace.Connector
}

func (st *stream) direction(from trace.Side) *direction {
	if from == trace.Acceptor {
		return &st.dirs[1]
	}
	return &st.dirs[0]
}

// direction are the bytes of one sender.
type direction struct {
	known bool    // next is
	next  uint32  // number of the next byte
	early []early // by seq
	held  int     // bytes of early
	fin   bool
	finAt uint32
	acked uint32 // by the other side, if known
	done  bool   // its end has come
}

// early is a segment that came before its predecessor.
type early struct {
	seq  uint32
	data []byte
	size int // on the wire, with the bytes that the recording has cut
}

// NewAssembler makes one that calls begin for every connection.
func NewAssembler(begin func(at time.Time, c trace.TCP) Handler) *Assembler {
	return &Assembler{begin: begin, conns: make(map[pair]*stream)}
}

// Add takes a segment.
func (a *Assembler) Add(s Segment) {
	a.last = s.Time
	key := pair{s.Src, s.Dst}
	if s.Src.Compare(s.Dst) > 0 {
		key = pair{s.Dst, s.Src}
	}
	st := a.conns[key]
	if s.SYN && st != nil && st.begunAnew(s) {
		a.end(key, st, s.Time, "the addresses were used again")
		st = nil
	}
	if st == nil {
		if s.RST || (!s.SYN && s.Len == 0) {
			return
		}
		st = a.start(key, s)
	}
	from := st.sender(s)
	st.add(from, s)
	switch {
	case s.RST:
		a.end(key, st, s.Time, "reset by the "+string(from))
	case st.dirs[0].done && st.dirs[1].done:
		a.end(key, st, s.Time, "closed")
	}
}

// Close ends the connections that are open where the recording ends.
func (a *Assembler) Close() {
	for a.order.Len() > 0 {
		key := a.order.Front().Value.(pair)
		a.end(key, a.conns[key], a.last, "open where the recording ends")
	}
}

// begunAnew says whether a SYN is one of another connection with the same addresses.
func (st *stream) begunAnew(s Segment) bool {
	d := st.direction(st.sender(s))
	return d.known && int32(s.Seq+1-d.next) > 0
}

func (a *Assembler) start(key pair, s Segment) *stream {
	if a.order.Len() >= maxConns {
		oldest := a.order.Front().Value.(pair)
		a.end(oldest, a.conns[oldest], s.Time, "given up: too many connections at a time")
	}
	st := &stream{TCP: trace.TCP{Connector: s.Src, Acceptor: s.Dst, Whole: s.SYN}}
	if s.SYN && s.HasAck || !s.SYN && s.Src.Port() < s.Dst.Port() {
		st.Connector, st.Acceptor = s.Dst, s.Src
	}
	st.h = a.begin(s.Time, st.TCP)
	a.conns[key] = st
	st.at = a.order.PushBack(key)
	return st
}

func (a *Assembler) end(key pair, st *stream, at time.Time, why string) {
	st.flush(at)
	st.h.End(at, why)
	delete(a.conns, key)
	a.order.Remove(st.at)
}

func (st *stream) add(from trace.Side, s Segment) {
	d := st.direction(from)
	seq := s.Seq
	if s.SYN {
		seq++
		if !d.known {
			d.known, d.next, d.acked = true, seq, seq
		}
	}
	if !d.known {
		if s.Len == 0 && !s.FIN {
			return
		}
		d.known, d.next, d.acked = true, seq, seq
	}
	if ahead := int32(seq - d.next); ahead > maxJump || ahead < -maxJump {
		return
	}
	if s.HasAck { // the sender had received all bytes that it acknowledges
		st.acked(from.Other(), s.Time, s.Ack)
	}
	if s.FIN {
		d.fin, d.finAt = true, seq+uint32(s.Len)
	}
	if s.Len > 0 {
		st.segment(from, s.Time, early{seq: seq, data: s.Payload, size: s.Len})
	}
	if d.fin && d.next == d.finAt {
		d.done = true
	}
}

// segment takes bytes, in order or early.
func (st *stream) segment(from trace.Side, at time.Time, e early) {
	d := st.direction(from)
	if int32(e.seq-d.next) <= 0 {
		st.deliver(from, at, e)
		st.upTo(from, at, d.next)
		return
	}
	i, _ := slices.BinarySearchFunc(d.early, e, func(a, b early) int { return int(int32(a.seq - b.seq)) })
	d.early = slices.Insert(d.early, i, early{e.seq, slices.Clone(e.data), e.size})
	d.held += len(e.data)
	for len(d.early) > maxEarly || d.held > maxEarlyBytes {
		st.upTo(from, at, d.early[0].seq)
	}
}

// deliver passes on the new bytes of a segment that begins at the next byte, or before it.
func (st *stream) deliver(from trace.Side, at time.Time, e early) {
	d := st.direction(from)
	old := int(d.next - e.seq)
	if old >= e.size {
		return
	}
	d.next = e.seq + uint32(e.size)
	if fresh := e.data[min(old, len(e.data)):]; len(fresh) > 0 {
		st.h.Data(at, from, fresh)
	}
	if n := e.size - max(old, len(e.data)); n > 0 {
		st.h.Gap(at, from, uint64(n))
	}
}

// upTo delivers the early segments below seq, and the segments that follow without a gap. It
// reports missing bytes below seq as gaps.
func (st *stream) upTo(from trace.Side, at time.Time, seq uint32) {
	d := st.direction(from)
	for {
		for len(d.early) > 0 && int32(d.early[0].seq-d.next) <= 0 {
			e := d.early[0]
			d.early, d.held = slices.Delete(d.early, 0, 1), d.held-len(e.data)
			st.deliver(from, at, e)
		}
		to := seq
		if len(d.early) > 0 && int32(d.early[0].seq-seq) < 0 {
			to = d.early[0].seq
		}
		n := int32(to - d.next)
		if n <= 0 || n > maxJump {
			return
		}
		d.next = to
		st.h.Gap(at, from, uint64(n))
	}
}

// acked handles an ack of the other side: missing bytes below it were not recorded.
func (st *stream) acked(from trace.Side, at time.Time, ack uint32) {
	d := st.direction(from)
	if !d.known {
		return
	}
	for len(d.early) > 0 && int32(ack-d.early[0].seq) >= 0 {
		st.upTo(from, at, d.early[0].seq)
	}
	if int32(ack-d.acked) > 0 {
		d.acked = ack
	}
	if d.fin && int32(ack-d.finAt) > 0 {
		st.upTo(from, at, d.finAt)
		d.done = true
	}
}

func (st *stream) flush(at time.Time) {
	for _, from := range []trace.Side{trace.Connector, trace.Acceptor} {
		d := st.direction(from)
		if !d.known {
			continue
		}
		end := d.acked
		if d.fin {
			end = d.finAt
		}
		for len(d.early) > 0 {
			st.upTo(from, at, d.early[0].seq)
		}
		st.upTo(from, at, end)
	}
}
