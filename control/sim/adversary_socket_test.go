//go:build !race

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

// adversary is a peer without a messenger: sockets on hosts of its own, of which
// the seed chooses every act. It runs in events of the network.
type adversary struct {
	w       *world
	plan    *adversaryPlan
	rng     *rand.Rand
	hosts   []*foeHost
	sockets []*foeSocket // by age
	users   uint64       // numbers of sockets and listeners
	woken   bool         // it looks at its drivers soon
	over    bool         // it acts no more
	vec     *uring.Vec   // of the write that is being handed over
	acts    map[string]int

	seen memory

	// Of the nodes.
	known   map[*control.Conn]bool // whether it is the adversary's
	logs    map[*node]*lineCount
	dialled []wire.Addr // by honest nodes: the addresses that it has
}

// memory has values that the adversary has seen, for use anywhere.
type memory struct {
	numbers []uint64
	addrs   []wire.Addr
	frames  [][]byte // whole, as they came
}

// foeHost is one of its addresses.
type foeHost struct {
	host      *simnet.Host
	drv       simnet.Driver
	listeners []uint64    // their numbers
	addrs     []wire.Addr // of the listeners
}

const (
	foePort    = 6800
	foeSockets = 200 // at once, at most
	memoryMost = 200 // of each kind
)

// foeSocket is one TCP connection of the adversary.
type foeSocket struct {
	a       *adversary
	on      *foeHost
	s       uring.Socket
	user    uint64
	to      *node     // that it dials; nil: accepted
	listens wire.Addr // on which it was accepted
	up      bool
	gone    bool
	in      []byte
	out     []byte
	sending bool

	// How it is disposed.
	wild int  // one answer in so many is none that the protocol has there; 0: all are right
	drip bool // it sends byte by byte
	deaf bool // it does not read
	mute bool // it does not write
	odd  bool // it has said something odd before the frames began

	talk
}

// newAdversary makes it, on hosts that are no node's. The nodes are not there yet.
func newAdversary(w *world) *adversary {
	a := &adversary{
		w: w, plan: w.plan.foe, rng: rand.New(rand.NewPCG(w.seed, 666)), acts: make(map[string]int),
		known: make(map[*control.Conn]bool), logs: make(map[*node]*lineCount),
	}
	v, err := uring.NewVec(1)
	if err != nil {
		w.t.Fatal(err)
	}
	a.vec = v
	for i := range a.plan.hosts {
		h := &foeHost{host: w.net.Host(netip.AddrFrom4([4]byte{10, 6, 6, byte(1 + i)}))}
		h.drv = h.host.Driver()
		a.hosts = append(a.hosts, h)
		h.addrs = a.addrsOf(h.host.IP(), uint32(i))
		a.dialled = append(a.dialled, h.addrs...)
	}
	w.largest = a.heldMost(1000) - w.plan.dispatch
	w.cover.Acts = a.acts
	return a
}

// begin has it listen and act.
func (a *adversary) begin() {
	for _, h := range a.hosts {
		for _, addr := range h.addrs {
			s, err := h.drv.Listen(addr.AddrPort, uring.ListenOptions{})
			if err != nil {
				a.w.t.Fatal(err)
			}
			a.users++
			h.listeners = append(h.listeners, a.users)
			if _, err := h.drv.Arm(uring.KindAccept, s, a.users); err != nil {
				a.w.t.Fatal(err)
			}
		}
	}
	a.later()
}

// later has it act again after a while.
func (a *adversary) later() {
	a.w.net.After(time.Duration(a.rng.Int64N(int64(2*a.plan.pace))), func() {
		if a.over {
			return
		}
		a.act()
		a.later()
	})
}

// end has it act no more: it stays as it is, silent, or is gone as a process that
// dies.
func (a *adversary) end(gone bool) {
	a.over = true
	if gone {
		for _, h := range a.hosts {
			h.host.Die(false)
		}
	}
}

// look makes the adversary look at its drivers soon, if they have completions. Each step ends
// with it.
func (a *adversary) look() {
	if a.woken || a.over || !slices.ContainsFunc(a.hosts, func(h *foeHost) bool { return h.drv.Pending() }) {
		return
	}
	a.woken = true
	a.w.net.After(time.Duration(a.rng.IntN(500))*time.Microsecond, func() {
		a.woken = false
		if a.over {
			return
		}
		for _, h := range a.hosts {
			for h.drv.Pending() {
				done, err := h.drv.Wait(0)
				if err != nil {
					a.w.fail("adversary: %v", err)
				}
				a.completed(h, done[0])
			}
		}
	})
}

func (a *adversary) completed(h *foeHost, c uring.Completion) {
	if c.Kind == uring.KindAccept {
		if i := slices.Index(h.listeners, c.User); i >= 0 && c.Res >= 0 {
			a.accepted(h, h.addrs[i], uring.MakeSocket(int(c.Res)))
		}
		return
	}
	i := slices.IndexFunc(a.sockets, func(s *foeSocket) bool { return s.user == c.User })
	if i < 0 {
		return
	}
	s := a.sockets[i]
	switch c.Kind {
	case uring.KindConnect:
		if c.Res < 0 {
			s.close()
			return
		}
		s.up = true
		s.watch()
		s.begin()
	case uring.KindReady:
		s.readable()
	case uring.KindSend:
		s.sending = false
		if c.Res < 0 {
			s.close()
			return
		}
		s.flush()
	}
}

func (a *adversary) accepted(h *foeHost, at wire.Addr, fd uring.Socket) {
	s := a.socket(h, fd, at.Type == wire.AddrLegacy)
	s.up, s.listens = true, at
	if a.rng.IntN(8) > 0 {
		s.name.Type = wire.OSD // else it is not whom the node expects
		s.claim = s.name
	}
	a.did("accept")
	s.watch()
	s.begin()
}

// socket makes one, and gives up the oldest if there are too many.
func (a *adversary) socket(h *foeHost, fd uring.Socket, v1 bool) *foeSocket {
	for len(a.sockets) >= foeSockets {
		a.sockets[0].close()
	}
	a.users++
	s := &foeSocket{a: a, on: h, s: fd, user: a.users}
	s.talk = a.newTalk(v1)
	switch a.rng.IntN(6) {
	case 0:
		s.wild = 1 + a.rng.IntN(3)
	case 1, 2:
		s.wild = 5 + a.rng.IntN(20)
	}
	switch a.rng.IntN(16) {
	case 0:
		s.drip = true
		a.did("send byte by byte")
	case 1:
		s.deaf = true
		a.did("never read")
	case 2:
		s.mute = true
		a.did("say nothing")
	}
	a.sockets = append(a.sockets, s)
	return s
}

// dial connects to a node that listens.
func (a *adversary) dial(to *node) *foeSocket {
	h := a.hosts[a.rng.IntN(len(a.hosts))]
	a.users++
	user := a.users
	at := a.pick(to)
	fd, _, err := h.drv.Connect(netip.AddrPort{}, at.AddrPort, uring.SocketOptions{}, user)
	if err != nil {
		a.w.fail("adversary: %v", err)
		return nil
	}
	s := a.socket(h, fd, at.Type == wire.AddrLegacy)
	s.user, s.to = user, to
	if a.plan.proven && a.rng.IntN(8) == 0 {
		s.feign()
	}
	return s
}

func (s *foeSocket) watch() {
	if _, err := s.on.drv.Arm(uring.KindReady, s.s, s.user); err != nil {
		s.a.w.fail("adversary: %v", err)
	}
}

// close ends the socket; with unread bytes that is a reset.
func (s *foeSocket) close() {
	if s.gone {
		return
	}
	s.gone = true
	a := s.a
	a.sockets = slices.DeleteFunc(a.sockets, func(o *foeSocket) bool { return o == s })
	s.on.drv.Close(s.s)
}

// readable takes the received bytes, and answers them.
func (s *foeSocket) readable() {
	if s.deaf || s.gone {
		return
	}
	var b [16 << 10]byte
	for !s.gone {
		n, errno := s.on.drv.Recv(s.s, b[:], nil)
		switch {
		case n > 0:
			s.in = append(s.in, b[:n]...)
			s.hear()
		case errno != 0 && errno != again:
			s.close()
			return
		case errno == 0:
			if s.a.rng.IntN(4) > 0 { // else it stays half open
				s.close()
			} else {
				s.deaf = true
			}
			return
		default:
			return
		}
	}
}

// write queues bytes after the bytes that wait already.
func (s *foeSocket) write(b []byte) {
	if s.mute || s.gone {
		return
	}
	if len(s.out) < 1<<20 { // else the node has stopped to read long ago
		s.out = append(s.out, b...)
	}
	s.flush()
}

// flush sends the bytes that wait.
func (s *foeSocket) flush() {
	if s.sending || s.gone || !s.up || len(s.out) == 0 {
		return
	}
	n := len(s.out)
	if s.drip {
		n = 1
	}
	s.sending = true
	v := s.a.vec // the simulated driver copies what it is given
	v.Reset()
	if !v.Append(s.out[:n]) {
		s.a.w.fail("adversary: no room in a gather list")
	}
	done, _, err := s.on.drv.Send(s.s, v, s.user, 0)
	s.out = s.out[n:]
	switch {
	case err != nil:
		s.close()
	case done && s.drip:
		s.a.w.net.After(time.Duration(s.a.rng.IntN(100))*time.Millisecond, func() { s.sending = false; s.flush() })
	case done:
		s.sending = false
		s.flush()
	}
}

// did counts an act, and adds it to the trace.
func (a *adversary) did(what string) {
	a.acts[what]++
	a.w.net.Note("adversary: %s", what)
}

// piece keeps bytes that came together; number and address keep their values.
func (m *memory) piece(raw []byte) {
	if len(m.frames) < memoryMost && len(raw) < 8<<10 {
		m.frames = append(m.frames, slices.Clone(raw))
	}
}

func (m *memory) number(list ...uint64) {
	if len(m.numbers) < memoryMost {
		m.numbers = append(m.numbers, list...)
	}
}

func (m *memory) address(v ...wire.Addr) {
	if len(m.addrs) < memoryMost {
		m.addrs = append(m.addrs, v...)
	}
}

// remember keeps some of the values that it sees.
func (m *memory) remember(f *frame.Frame, raw []byte) {
	m.piece(raw)
	switch f.Tag {
	case frame.TagHello:
		if h, err := wire2.DecodeHello(f.Seg[0]); err == nil {
			m.address(h.PeerAddr)
		}
	case frame.TagClientIdent:
		if c, err := wire2.DecodeClientIdent(f.Seg[0]); err == nil {
			m.number(c.GlobalSeq, c.Cookie)
			m.address(c.Addrs...)
		}
	case frame.TagServerIdent:
		if c, err := wire2.DecodeServerIdent(f.Seg[0]); err == nil {
			m.number(c.GlobalSeq, c.Cookie)
			m.address(c.Addrs...)
		}
	case frame.TagSessionReconnect:
		if c, err := wire2.DecodeSessionReconnect(f.Seg[0]); err == nil {
			m.number(c.ClientCookie, c.ServerCookie, c.GlobalSeq, c.ConnectSeq, c.MsgSeq)
		}
	case frame.TagSessionRetryGlobal, frame.TagSessionRetry, frame.TagSessionReconnectOK, frame.TagAck:
		m.number(wire.NewReader(f.Seg[0]).U64())
	}
}

// String names the socket in a failure.
func (s *foeSocket) String() string { return fmt.Sprintf("socket %d", s.user) }
