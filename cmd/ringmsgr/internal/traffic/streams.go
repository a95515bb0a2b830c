package traffic

import (
	"container/list"
	"net/netip"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/trace"
)

const (
	// maxStreams bounds the number of TCP connections at a time.
	maxStreams = 16 << 10
	// maxEarly and maxEarlyBytes bound the segments of one direction that wait for earlier
	// bytes.
	maxEarly      = 1 << 10
	maxEarlyBytes = 4 << 20
	// maxJump is the largest distance of a segment from the last one; segments beyond it belong
	// to another connection.
	maxJump = 1 << 30
)

// handler gets the streams of one connection, as [trace.Streams] does.
type handler interface {
	// Data has the next bytes of a direction, valid during the call.
	Data(at time.Time, from trace.Side, p []byte)
	// Gap says that n bytes of a direction were not recorded.
	Gap(at time.Time, from trace.Side, n uint64)
	// End is the last call. It says in words why the connection has ended.
	End(at time.Time, why string)
}

// assembler puts segments together to streams: it gives the bytes of each direction in order, and
// reports missing bytes. The assembler of gopacket ignores the acks of the other side, so that it
// gives the bytes after a gap too late to tell which side spoke first.
type assembler struct {
	begin func(at time.Time, c trace.TCP) handler // of a connection
	conns map[pair]*list.Element
	order list.List // the streams, as they began
	last  time.Time
}

func newAssembler(begin func(at time.Time, c trace.TCP) handler) *assembler {
	return &assembler{begin: begin, conns: make(map[pair]*list.Element)}
}

// pair names a connection, the smaller address first.
type pair struct{ a, b netip.AddrPort }

type stream struct {
	trace.TCP
	key  pair
	h    handler
	dirs [2]direction // of the connector, of the acceptor
}

// direction are the bytes of one sender.
type direction struct {
	from  trace.Side
	h     handler
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

// add takes a segment.
func (a *assembler) add(s segment) {
	a.last = s.at
	key := pair{s.src, s.dst}
	if s.src.Compare(s.dst) > 0 {
		key = pair{s.dst, s.src}
	}
	e := a.conns[key]
	if s.syn && e != nil {
		// A SYN of another connection with the same addresses is beyond the bytes of this one.
		if d, _ := e.Value.(*stream).directions(s); d.known && int32(s.seq+1-d.next) > 0 {
			a.end(e, s.at, "the addresses were used again")
			e = nil
		}
	}
	if e == nil {
		if s.rst || (!s.syn && s.size == 0) {
			return
		}
		e = a.start(key, s)
	}
	st := e.Value.(*stream)
	d, back := st.directions(s)
	d.add(s, back)
	switch {
	case s.rst:
		a.end(e, s.at, "reset by the "+string(d.from))
	case d.done && back.done:
		a.end(e, s.at, "closed")
	}
}

// close ends the connections that are open where the recording ends.
func (a *assembler) close() {
	for a.order.Len() > 0 {
		a.end(a.order.Front(), a.last, "open where the recording ends")
	}
}

func (a *assembler) start(key pair, s segment) *list.Element {
	if a.order.Len() >= maxStreams {
		a.end(a.order.Front(), s.at, "given up: too many connections at a time")
	}
	st := &stream{TCP: trace.TCP{Connector: s.src, Acceptor: s.dst, Whole: s.syn}, key: key}
	if s.syn && s.hasAck || !s.syn && s.src.Port() < s.dst.Port() {
		st.Connector, st.Acceptor = s.dst, s.src
	}
	st.h = a.begin(s.at, st.TCP)
	st.dirs = [2]direction{{from: trace.Connector, h: st.h}, {from: trace.Acceptor, h: st.h}}
	a.conns[key] = a.order.PushBack(st)
	return a.conns[key]
}

func (a *assembler) end(e *list.Element, at time.Time, why string) {
	st := a.order.Remove(e).(*stream)
	delete(a.conns, st.key)
	for i := range st.dirs {
		st.dirs[i].flush(at)
	}
	st.h.End(at, why)
}

// directions are the sender of a segment, and the other side.
func (st *stream) directions(s segment) (d, back *direction) {
	if s.src == st.Acceptor && s.dst == st.Connector {
		return &st.dirs[1], &st.dirs[0]
	}
	return &st.dirs[0], &st.dirs[1]
}

func (d *direction) add(s segment, back *direction) {
	seq := s.seq
	if s.syn {
		seq++
	}
	if !d.known {
		if !s.syn && !s.fin && s.size == 0 {
			return
		}
		d.known, d.next, d.acked = true, seq, seq
	}
	if ahead := int32(seq - d.next); ahead > maxJump || ahead < -maxJump {
		return
	}
	if s.hasAck { // the sender had received all bytes that it acknowledges
		back.confirm(s.at, s.ack)
	}
	if s.fin {
		d.fin, d.finAt = true, seq+uint32(s.size)
	}
	if s.size > 0 {
		d.take(s.at, early{seq, s.payload, s.size})
	}
	if d.fin && d.next == d.finAt {
		d.done = true
	}
}

// take takes bytes, in order or early.
func (d *direction) take(at time.Time, e early) {
	if int32(e.seq-d.next) <= 0 {
		d.deliver(at, e)
		d.upTo(at, d.next)
		return
	}
	i, _ := slices.BinarySearchFunc(d.early, e, func(a, b early) int { return int(int32(a.seq - b.seq)) })
	d.early = slices.Insert(d.early, i, early{e.seq, slices.Clone(e.data), e.size})
	d.held += len(e.data)
	for len(d.early) > maxEarly || d.held > maxEarlyBytes {
		d.upTo(at, d.early[0].seq)
	}
}

// deliver passes on the new bytes of a segment that begins at the next byte, or before it.
func (d *direction) deliver(at time.Time, e early) {
	old := int(d.next - e.seq)
	if old >= e.size {
		return
	}
	d.next = e.seq + uint32(e.size)
	if fresh := e.data[min(old, len(e.data)):]; len(fresh) > 0 {
		d.h.Data(at, d.from, fresh)
	}
	if n := e.size - max(old, len(e.data)); n > 0 {
		d.h.Gap(at, d.from, uint64(n))
	}
}

// upTo delivers the early segments below seq, and the segments that follow without a gap. It
// reports missing bytes below seq as gaps.
func (d *direction) upTo(at time.Time, seq uint32) {
	for {
		for len(d.early) > 0 && int32(d.early[0].seq-d.next) <= 0 {
			e := d.early[0]
			d.early, d.held = slices.Delete(d.early, 0, 1), d.held-len(e.data)
			d.deliver(at, e)
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
		d.h.Gap(at, d.from, uint64(n))
	}
}

// confirm handles an ack of the other side: missing bytes below it were not recorded.
func (d *direction) confirm(at time.Time, ack uint32) {
	if !d.known {
		return
	}
	for len(d.early) > 0 && int32(ack-d.early[0].seq) >= 0 {
		d.upTo(at, d.early[0].seq)
	}
	if int32(ack-d.acked) > 0 {
		d.acked = ack
	}
	if d.fin && int32(ack-d.finAt) > 0 {
		d.upTo(at, d.finAt)
		d.done = true
	}
}

// flush delivers what has come.
func (d *direction) flush(at time.Time) {
	for len(d.early) > 0 {
		d.upTo(at, d.early[0].seq)
	}
	switch {
	case d.fin:
		d.upTo(at, d.finAt)
	case d.known:
		d.upTo(at, d.acked)
	}
}
