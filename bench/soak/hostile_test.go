package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// attacks are hostile peers, each until ctx ends, or the peer's own end.
var attacks = []func(h *hostile, ctx context.Context){
	(*hostile).garbage, (*hostile).silence, (*hostile).announce,
	(*hostile).neverRead, (*hostile).keepalives, (*hostile).begin,
}

// hostile is one attacker. It belongs to one goroutine.
type hostile struct {
	rng  *rand.Rand
	to   wire.Addr
	id   int
	next uint64 // global_seq
}

// attackAll runs two attackers of each kind until ctx ends.
func attackAll(ctx context.Context, wg *sync.WaitGroup, to wire.Addr, acts *atomic.Int64) {
	for i := range 2 * len(attacks) {
		act := attacks[i%len(attacks)]
		h := &hostile{rng: rand.New(rand.NewPCG(1, uint64(i))), to: to, id: 1000 + i}
		wg.Go(func() {
			for ctx.Err() == nil {
				round, cancel := context.WithTimeout(ctx, 6*time.Second)
				act(h, round)
				cancel()
				acts.Add(1)
				rest(ctx, slower(50*time.Millisecond))
			}
		})
	}
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// dial opens a TCP connection that ends with ctx.
func (h *hostile) dial(ctx context.Context) net.Conn {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", h.to.AddrPort.String())
	if err != nil {
		return nil // the server is full
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c
}

// garbage is written where a banner belongs.
func (h *hostile) garbage(ctx context.Context) {
	if c := h.dial(ctx); c != nil {
		b := make([]byte, 1+h.rng.IntN(200))
		for i := range b {
			b[i] = byte(h.rng.Uint32())
		}
		_, _ = c.Write(b)
		_, _ = c.Read(b) // until the server has had enough
		_ = c.Close()
	}
}

// silence takes places in the half-open set.
func (h *hostile) silence(ctx context.Context) {
	for range 100 {
		if c := h.dial(ctx); c != nil && h.rng.IntN(2) == 0 {
			_, _ = c.Write([]byte("ceph v2\n")[:h.rng.IntN(9)])
		}
	}
	<-ctx.Done()
}

// peer is a lossy session as an MDS, which the server answers without state.
func (h *hostile) peer(ctx context.Context) *msgrtest.Peer {
	h.next++
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.MDS, ID: fmt.Sprint(h.id)}}, h.to)
	p.Establish(0, h.next)
	return p
}

// announce says that a large message comes, and stops after its first bytes.
func (h *hostile) announce(ctx context.Context) {
	p := h.peer(ctx)
	defer p.Close()
	if p.Err() == nil {
		hd := frame.MessageHeader{Seq: 1, Type: 1000}
		p.WriteRaw(frame.NewEncoder(frame.Rev1).AppendMessage(nil, &hd, 64, 0, 8<<20))
	}
	p.WriteRaw(make([]byte, h.rng.IntN(64<<10)))
	p.ExpectEnd()
}

// neverRead asks for echoes, and leaves them where they are.
func (h *hostile) neverRead(ctx context.Context) {
	p := h.peer(ctx)
	defer p.Close()
	data := make([]byte, 64<<10)
	for tid := uint64(1); p.Err() == nil && tid < 400; tid++ {
		p.SendMessage(frame.MessageHeader{Seq: tid, TID: tid, Type: 1000}, nil, nil, data)
	}
	<-ctx.Done()
}

// keepalives come without end.
func (h *hostile) keepalives(ctx context.Context) {
	p := h.peer(ctx)
	defer p.Close()
	stamp := make([]byte, 8)
	for i := 0; i < 20000 && p.Err() == nil; i++ {
		p.Send(frame.TagKeepalive2, stamp)
	}
}

// begin opens lossy sessions and resets them.
func (h *hostile) begin(ctx context.Context) {
	for ctx.Err() == nil {
		p := h.peer(ctx)
		p.Reset()
		rest(ctx, slower(20*time.Millisecond))
	}
}
