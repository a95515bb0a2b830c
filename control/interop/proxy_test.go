package interop_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy passes bytes between TCP connections and a server, until it is told to
// cut them.
type proxy struct {
	to string

	mu   sync.Mutex
	open map[net.Conn]struct{} // both sides of every link
	over bool
	work sync.WaitGroup
}

// startProxy listens on from until the test ends.
func startProxy(t *testing.T, from, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp4", from)
	check(t, err)
	p := &proxy{to: to, open: make(map[net.Conn]struct{})}
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

// cut resets all connections and returns how many links it found. New ones pass.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	return len(p.open) / 2
}

func (p *proxy) carry(client net.Conn) {
	server, err := net.Dial("tcp4", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.add(client, server) {
		return
	}
	var both sync.WaitGroup
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src) // its errors are the ends that we want to pass on
		_ = dst.(*net.TCPConn).CloseWrite()
	}
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
	p.remove(client, server)
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.over {
			_ = c.Close()
			continue
		}
		p.open[c] = struct{}{}
	}
	return !p.over
}

func (p *proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}
