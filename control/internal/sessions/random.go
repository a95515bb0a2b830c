package sessions

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
)

// randomSource makes random numbers other than 0, for any goroutine, but not under
// the lock of sessions: a source may be a system call, or a user's.
type randomSource struct {
	mu     sync.Mutex
	from   io.Reader // guarded by mu
	failed uint64    // guarded by mu
	buf    [8]byte   // guarded by mu
	check  *steplock.Check
}

func (r *randomSource) next() uint64 {
	r.check.MustBeFree("the source of random numbers")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draw()
}

// pair returns two numbers.
func (r *randomSource) pair() (a, b uint64) {
	r.check.MustBeFree("the source of random numbers")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draw(), r.draw()
}

// draw is next. The caller holds the lock of the source.
func (r *randomSource) draw() uint64 {
	for {
		// The system's source does not fail; an injected one that does leaves
		// zeros, which the counter makes unique.
		if _, err := io.ReadFull(r.from, r.buf[:]); err != nil {
			r.failed++
			return r.failed
		}
		if v := binary.LittleEndian.Uint64(r.buf[:]); v != 0 {
			return v
		}
	}
}

// numbers are random numbers for one step. They are drawn before, as the lock is
// held during a step.
type numbers struct{ client, server uint64 }

func (m *Manager) drawNumbers() (n numbers) {
	n.client, n.server = m.random.pair()
	return n
}

// cookie is a new client cookie.
func (n numbers) cookie() uint64 { return n.client }

// owner is a new server cookie. For peers of package control it names the core that owns the
// socket, if they can reach it by a hint.
func (n numbers) owner(m *Manager, c *Conn) uint64 {
	h := m.steering.Hint(c.s.att.link.Core().ID())
	if !h.Known() {
		return n.server
	}
	cookie := h.Cookie(n.server)
	if cookie == 0 {
		return n.server // one of very many draws
	}
	m.hints.Count(func(n *steering.HintCounts) { n.Given++ })
	return cookie
}
