package uring_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Random sequences of operations on a few connections, against a model: what a
// side reads is what the other side sent, in order and from the start, and all
// of it if nobody cancelled or closed; every operation has one final
// completion (which rig checks).
// Matrix: RL-09, FR-25, SH-14, IO-02, IO-03, IO-05, IO-16, IO-18
func TestRandomOperations(t *testing.T) {
	small := uring.Tuned(uring.Config{Entries: 4}, uring.Tuning{Buffers: 2, BufferSize: 4096, Files: 4})
	for _, cfg := range []uring.Config{{}, small} {
		overDrivers(t, cfg, func(t *testing.T, r *rig) {
			newModel(r, random(t)).run(1500)
			if r.d.Info().Receive && cfg.Entries > 0 && r.d.Stats().NoBuffers == 0 {
				t.Error("two buffers did not run out, or NoBuffers is not counted")
			}
		})
	}
}

func FuzzOperations(f *testing.F) {
	f.Add(uint64(1), uint16(50))
	f.Add(uint64(2), uint16(300))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		overDrivers(t, uring.Config{Entries: 8}, func(t *testing.T, r *rig) {
			newModel(r, rand.New(rand.NewPCG(seed, 0))).run(int(steps % 500))
		})
	})
}

type model struct {
	r     *rig
	rnd   *rand.Rand
	ends  []*end // pairs: 0 and 1, 2 and 3, ...
	bytes []byte // pieces of it are sent
	buf   []byte
	held  []heldBytes
}

// heldBytes are bytes in receive buffers that are not released yet.
type heldBytes struct {
	buf       uring.Buffer
	got, want []byte
}

// end is one side of a connection.
type end struct {
	s    uring.Socket
	peer *end

	out     []byte // all that this side has sent, and sends
	pending int    // bytes of the send in flight
	vec     *uring.Vec
	send    uint64
	sendOp  uring.Op
	broken  bool // a send was cancelled: pending bytes of it may have gone out

	read    int // bytes read from the peer's stream
	ended   bool
	reader  uint64 // Ready or Receive
	readOp  uring.Op
	receive bool // the stream is taken by Receive: no Recv beside it
}

const modelPairs = 3

func newModel(r *rig, rnd *rand.Rand) *model {
	r.slice = 20 * time.Millisecond
	m := &model{r: r, rnd: rnd, bytes: randomBytes(rnd, 1<<20+7), buf: make([]byte, 300_000)}
	for range modelPairs {
		m.ends = append(m.ends, nil, nil)
		m.connect(len(m.ends) - 2)
	}
	return m
}

func (m *model) connect(i int) {
	m.r.t.Helper()
	a := &end{}
	b := &end{peer: a}
	a.peer = b
	a.s, b.s = m.r.pair(uring.SocketOptions{SendBuffer: 32 << 10, ReceiveBuffer: 32 << 10})
	m.ends[i], m.ends[i+1] = a, b
}

func (m *model) run(steps int) {
	m.r.t.Helper()
	for range steps {
		i := m.rnd.IntN(len(m.ends))
		e := m.ends[i]
		switch p := m.rnd.IntN(100); {
		case p < 30:
			m.startSend(e)
		case p < 50:
			m.recv(e)
		case p < 60:
			m.arm(e)
		case p < 64:
			if e.readOp != 0 {
				m.r.d.Cancel(e.readOp)
			}
		case p < 66:
			if e.sendOp != 0 {
				m.r.d.Cancel(e.sendOp)
			}
		case p < 68:
			m.replace(i &^ 1)
		case p < 75:
			m.releaseSome(m.rnd.IntN(len(m.held) + 1))
		case p < 76:
			m.r.d.Wake()
		default:
			m.r.step(0)
			m.collect()
		}
	}
	m.finish()
}

func (m *model) startSend(e *end) {
	m.r.t.Helper()
	if e.sendOp != 0 || e.broken {
		return
	}
	if e.vec == nil {
		e.vec = m.r.vec(nil, nil, nil, nil, nil, nil, nil, nil)
	}
	if e.vec.Size() == 0 || m.rnd.IntN(4) > 0 { // else the same list again: a send leaves it as it was
		e.vec.Reset()
		for n := 1 + m.rnd.IntN(1<<(1+m.rnd.IntN(18))); n > 0 && e.vec.Count() < 8; {
			size := 1 + m.rnd.IntN(n)
			at := m.rnd.IntN(len(m.bytes) - size)
			e.vec.Append(m.bytes[at : at+size])
			n -= size
		}
	}
	e.out = e.vec.AppendTo(e.out)
	done, user, op := m.r.send(e.s, e.vec, [...]uring.SendFlags{0, uring.SendQuiet, uring.SendZeroCopy}[m.rnd.IntN(3)])
	if !done {
		e.send, e.sendOp, e.pending = user, op, e.vec.Size()
	}
}

func (m *model) arm(e *end) {
	m.r.t.Helper()
	if e.readOp != 0 || e.ended {
		return
	}
	if m.r.d.Info().Receive && m.rnd.IntN(2) == 0 {
		e.receive = true
		e.reader, e.readOp = m.r.receive(e.s)
	} else {
		e.reader, e.readOp = m.r.ready(e.s)
	}
}

func (m *model) recv(e *end) {
	m.r.t.Helper()
	if e.receive || e.ended {
		return
	}
	n := 1 + m.rnd.IntN(1<<(1+m.rnd.IntN(17)))
	cut := m.rnd.IntN(n)
	var got int
	var errno unix.Errno
	if m.rnd.IntN(2) == 0 {
		got, errno = m.r.d.Recv(e.s, m.buf[:n], nil)
	} else {
		got, errno = m.r.d.Recv(e.s, m.buf[:cut], m.buf[cut:n])
	}
	switch {
	case errno == unix.EAGAIN:
	case errno != 0:
		m.r.t.Fatalf("read: %v", errno)
	case got == 0:
		m.r.t.Fatal("the stream ended, but nobody closed it")
	default:
		m.arrived(e, m.buf[:got])
	}
}

func (m *model) arrived(e *end, data []byte) {
	m.r.t.Helper()
	want := e.peer.out[e.read:]
	if len(data) > len(want) {
		m.r.t.Fatalf("read %d bytes, %d were sent", e.read+len(data), len(e.peer.out))
	}
	if !bytes.Equal(data, want[:len(data)]) {
		m.r.t.Fatalf("wrong bytes in %d to %d of the stream", e.read, e.read+len(data))
	}
	e.read += len(data)
}

// collect takes all completions that have come.
func (m *model) collect() {
	m.r.t.Helper()
	for _, e := range m.ends {
		for e.sendOp != 0 {
			c, ok := m.r.take(e.send)
			if !ok {
				break
			}
			m.sendEnded(e, c)
		}
		for e.readOp != 0 {
			c, ok := m.r.take(e.reader)
			if !ok {
				break
			}
			m.readable(e, c)
		}
	}
}

func (m *model) sendEnded(e *end, c uring.Completion) {
	m.r.t.Helper()
	e.sendOp = 0
	switch {
	case int(c.Res) == e.pending:
		e.pending = 0
	case c.Errno() == unix.ECANCELED:
		e.broken = true // some of it may be out
	default:
		m.r.t.Fatalf("send of %d bytes: %+v (%v)", e.pending, c, c.Errno())
	}
}

func (m *model) readable(e *end, c uring.Completion) {
	m.r.t.Helper()
	if c.Kind == uring.KindReceive && c.Res > 0 {
		m.arrived(e, c.Data)
		m.held = append(m.held, heldBytes{c.Buf, c.Data, bytes.Clone(c.Data)})
	}
	if c.Flags&uring.More != 0 {
		return
	}
	e.readOp, e.receive = 0, false
	switch c.Errno() {
	case unix.ECANCELED:
	case unix.ENOBUFS:
		m.releaseSome(len(m.held))
	case 0:
		if c.Res == 0 {
			m.r.t.Fatal("the stream ended, but nobody closed it")
		}
	default:
		m.r.t.Fatalf("reading: %+v (%v)", c, c.Errno())
	}
}

func (m *model) releaseSome(n int) {
	for range n {
		i := m.rnd.IntN(len(m.held))
		if h := m.held[i]; !bytes.Equal(h.got, h.want) {
			m.r.t.Fatal("bytes have changed before Release")
		}
		m.r.d.Release(m.held[i].buf)
		m.held[i] = m.held[len(m.held)-1]
		m.held = m.held[:len(m.held)-1]
	}
}

// replace closes both sides of a connection, with everything in flight, and
// makes another one, likely with the same descriptors.
func (m *model) replace(i int) {
	m.r.t.Helper()
	old := [2]*end{m.ends[i], m.ends[i+1]}
	for _, e := range old {
		m.r.d.Close(e.s)
	}
	m.connect(i)
	for _, e := range old {
		for _, flight := range []struct {
			op   uring.Op
			user uint64
		}{{e.sendOp, e.send}, {e.readOp, e.reader}} {
			for flight.op != 0 {
				c := m.r.await(flight.user)
				if c.Kind == uring.KindReceive && c.Res > 0 {
					m.r.d.Release(c.Buf)
				}
				if c.Flags&uring.More == 0 {
					break
				}
			}
		}
	}
}

// finish reads everything to the end and compares.
func (m *model) finish() {
	m.r.t.Helper()
	for _, e := range m.ends { // one way of reading is enough now
		if e.readOp != 0 {
			m.r.d.Cancel(e.readOp)
		}
	}
	m.r.until("bytes or completions missing", func() bool {
		m.collect()
		m.releaseSome(len(m.held))
		missing := false
		for _, e := range m.ends {
			m.recv(e)
			missing = missing || e.readOp != 0 || e.sendOp != 0 || !e.peer.broken && e.read != len(e.peer.out)
		}
		if missing {
			m.r.d.Wake() // readiness is not what this waits for
		}
		return !missing
	})
	for _, e := range m.ends {
		m.r.d.Close(e.s)
	}
	m.r.d.Close(m.r.listener)
	m.r.until("final completions missing", func() bool { return m.r.unended == 0 })
	if n := m.r.d.Stats().InFlight; n != 0 {
		m.r.t.Fatalf("%d operations in flight, all have ended", n)
	}
}
