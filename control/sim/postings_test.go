//go:build !race

package sim_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// simPostings are the postings of all nodes. They have random numbers of their own, so that
// worlds without them take the course that they always took.
type simPostings struct {
	w        *world
	rng      *rand.Rand
	list     []*simPosting
	armed    []*simPosting                 // and most did not end yet
	last     map[*control.Conn]uint64      // transaction id
	expected map[*control.Conn]*simPosting // used, and its message is about to come
	used     int
	taken    int // back
}

// simPosting is memory that a user posts once.
type simPosting struct {
	control.Posting
	conn  *control.Conn
	n     *node
	ended bool
	free  bool // it is the user's again, and nothing came into it
}

// runPostings is one simulation with postings.
func runPostings(t testing.TB, seed uint64, trace io.Writer) *world {
	w := newWorld(t, seed, protocolOf(seed), trace)
	w.postings = &simPostings{
		w: w, rng: rand.New(rand.NewPCG(seed, 71)), last: map[*control.Conn]uint64{}, expected: map[*control.Conn]*simPosting{},
	}
	w.simulate()
	w.cover.PostedUsed, w.cover.PostedTaken = w.postings.used, w.postings.taken
	return w
}

// TestSimulationOfPostings runs fewer seeds than TestSimulation, with users who post memory for
// the messages to come, and take it back at any moment.
// Matrix: V1-13
func TestSimulationOfPostings(t *testing.T) {
	cover := new(simCover)
	seeds := max(*simSeeds/10, 1)
	if *simSeeds != 1000 { // it was set
		seeds = *simSeeds
	}
	simHere(t, seeds, cover, runPostings)
	t.Logf("%d postings were used, %d taken back", cover.PostedUsed, cover.PostedTaken)
	if !t.Failed() && seeds >= 100 && (cover.PostedUsed < seeds || cover.PostedTaken < seeds) {
		t.Error("too little happened")
	}
}

// act posts some memory.
func (s *simPostings) act() {
	if s == nil {
		return
	}
	for range s.rng.IntN(30) {
		n := s.w.nodes[s.rng.IntN(len(s.w.nodes))]
		if n.m == nil || n.ending {
			continue
		}
		if conns := n.m.Conns(); len(conns) > 0 {
			s.post(n, conns[s.rng.IntN(len(conns))])
		}
	}
	s.w.woken = true
}

// step may take memory back, from the outside or on the core. Most steps are bytes that
// come, so that it meets messages of which a part is there.
func (s *simPostings) step() {
	if s == nil || len(s.armed) == 0 || s.rng.IntN(8) != 0 {
		return
	}
	i := s.rng.IntN(len(s.armed))
	p := s.armed[i]
	s.armed[i] = s.armed[len(s.armed)-1]
	s.armed = s.armed[:len(s.armed)-1]
	if p.ended {
		return
	}
	if s.rng.IntN(2) == 0 {
		p.Withdraw()
	} else {
		p.conn.Post(&loop.Task{Run: func(*loop.Core) { p.Withdraw() }})
	}
	s.w.woken = true
}

// post posts memory for a message that is soon to come, or perhaps came already.
func (s *simPostings) post(n *node, c *control.Conn) {
	p := &simPosting{n: n, conn: c}
	p.TID = s.last[c] + uint64(s.rng.IntN(12))
	p.Buffer = make([]byte, 1+s.rng.IntN(1<<(4+s.rng.IntN(14))))
	p.Done = func(_ *control.Posting, err error) { s.done(p, err) }
	switch err := c.PostBuffer(&p.Posting); {
	case err == nil:
		s.list = append(s.list, p)
		s.armed = append(s.armed, p)
	case p.TID == 0, errors.Is(err, control.ErrClosed):
	default:
		s.w.fail("node %d: post: %v", n.id, err)
	}
}

// done is the end of a posting.
func (s *simPostings) done(p *simPosting, err error) {
	w, n := s.w, p.n
	switch {
	case p.ended:
		w.fail("node %d: a posting for %d ended twice", n.id, p.TID)
	case w.turn != n && !n.ending || w.turn == n && w.core != p.conn.Core().ID():
		w.fail("node %d: a posting for %d of conn %d ended not on its core", n.id, p.TID, p.conn.ID())
	}
	p.ended = true
	switch {
	case err == nil:
		s.used++
		s.expected[p.conn] = p
		return
	case errors.Is(err, context.Canceled):
		s.taken++
	case !errors.Is(err, control.ErrSessionLost) && !errors.Is(err, control.ErrTIDInUse):
		w.fail("node %d: a posting for %d ended by %v", n.id, p.TID, err)
	}
	p.free = true
	for i := range p.Buffer {
		p.Buffer[i] = 0xa5
	}
}

// came checks where the data of a message lies.
func (s *simPostings) came(n *node, c *control.Conn, m *control.Message) {
	if s == nil {
		return
	}
	s.last[c] = m.TID
	p := s.expected[c]
	delete(s.expected, c)
	if m.Posted() != (p != nil) || p != nil && (m.TID != p.TID || &m.Data[0] != &p.Buffer[0]) {
		s.w.fail("node %d: conn %d: message %d posted %v, a posting was used: %v", n.id, c.ID(), m.TID, m.Posted(), p != nil)
	}
}

// check looks at all memory when everything is over.
func (s *simPostings) check() {
	if s == nil {
		return
	}
	for _, p := range s.list {
		switch {
		case !p.ended:
			s.w.fail("node %d: a posting for %d of conn %d never ended", p.n.id, p.TID, p.conn.ID())
		case p.free && bytes.Count(p.Buffer, []byte{0xa5}) != len(p.Buffer):
			s.w.fail("node %d: memory that was posted for %d was touched after it was given back", p.n.id, p.TID)
		}
	}
}
