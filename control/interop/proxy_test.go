package interop_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes bytes between TCP connections and a server, until it is told
// otherwise.
type proxy struct {
	mu     sync.Mutex
	to     string
	links  map[*link]struct{}
	closed bool // no new ones: they are reset
	hole   bool // new ones lead nowhere
	over   bool
	work   sync.WaitGroup
}

// link is one connection and its other half, which is nil if it leads nowhere.
type link struct {
	client, server net.Conn
	dead           [2]atomic.Bool // nothing passes any more in a direction, and nobody is told
}

// Directions of a link.
const (
	toServer = iota
	toClient
)

// startProxy listens on from until the test ends.
func startProxy(t *testing.T, from, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp4", from)
	check(t, err)
	p := &proxy{to: to, links: make(map[*link]struct{})}
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		p.cut()
		p.work.Wait()
	})
	return p
}

// cut resets all connections. New ones pass.
func (p *proxy) cut() { p.end(0) }

// end closes all connections; linger is that of their sockets.
func (p *proxy) end(linger int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		for _, c := range l.conns() {
			_ = c.(*net.TCPConn).SetLinger(linger)
			_ = c.Close()
		}
	}
}

// lead has new connections go to another address.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// close refuses new connections, or passes them again.
func (p *proxy) close(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = yes
}

// blackHole drops all bytes of the present connections, for ever, and those of
// new connections while it is on.
func (p *proxy) blackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = on
	for l := range p.links {
		l.dead[toServer].Store(true)
		l.dead[toClient].Store(true)
	}
}

// swallow drops the bytes of the present connections in one direction.
func (p *proxy) swallow(direction int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.dead[direction].Store(true)
	}
}

func (l *link) conns() []net.Conn {
	if l.server == nil {
		return []net.Conn{l.client}
	}
	return []net.Conn{l.client, l.server}
}

func (p *proxy) carry(client net.Conn) {
	l := &link{client: client}
	p.mu.Lock()
	to, hole, closed := p.to, p.hole, p.closed
	p.mu.Unlock()
	if closed {
		_ = client.(*net.TCPConn).SetLinger(0)
		_ = client.Close()
		return
	}
	if l.dead[toServer].Store(hole); !hole {
		server, err := net.Dial("tcp4", to)
		if err != nil {
			_ = client.Close()
			return
		}
		l.server = server
	}
	if p.add(l) {
		var both sync.WaitGroup
		both.Go(func() { l.pass(l.server, client, &l.dead[toServer]) })
		if l.server != nil {
			both.Go(func() { l.pass(client, l.server, &l.dead[toClient]) })
		}
		both.Wait()
	}
	p.remove(l)
}

// pass copies until an end, and passes that on.
func (l *link) pass(dst, src net.Conn, dead *atomic.Bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if !dead.Load() && n > 0 {
			_, _ = dst.Write(buf[:n]) // its error is an end, which the other direction sees
		}
		if err != nil {
			if !dead.Load() {
				_ = dst.(*net.TCPConn).CloseWrite()
			}
			return
		}
	}
}

func (p *proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.links[l] = struct{}{}
	}
	return !p.over
}

func (p *proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range l.conns() {
		_ = c.Close()
	}
	delete(p.links, l)
}
