package sessions

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// disprovedMax bounds the addresses of which a claim was wrong.
const disprovedMax = 1024

// names are the connections of each address, in the order in which they came: a connection
// has dialled it, or its peer came and claims it, or its peer, which was dialled at another
// address, names it as its first. Package session ranks them (identity.go). They belong to
// the Manager.
type names struct {
	// disproved are addresses of which a claim was wrong; guarded by the messenger's
	// lock. An address gets here by a Connect of our user alone.
	disproved map[wire.Addr]struct{}
	// shown has the connections of each address (*known). It changes under the lock of sessions; a
	// dispatcher on a core, which must not wait for that, looks for a connection, too. A map of Go
	// would keep the memory of the most addresses that there ever were.
	shown sync.Map
}

// known are the connections of one address, and their peers. It does not change.
type known struct {
	conns     []*Conn
	peers     []*session.Peer // by connection
	disproved bool            // a claim to the address was wrong: none is believed
}

// at has the connections of an address. Any goroutine, a core's too.
func (n *names) at(a wire.Addr) *known {
	if v, ok := n.shown.Load(a); ok {
		return v.(*known)
	}
	return &known{}
}

// addLocked has a connection go by an address.
func (n *names) addLocked(a wire.Addr, c *Conn) {
	list := n.at(a).conns
	if !slices.Contains(list, c) {
		list = append(slices.Clip(list), c)
	}
	n.showLocked(a, list)
}

// removeLocked undoes add.
func (n *names) removeLocked(a wire.Addr, c *Conn) {
	list := n.at(a).conns
	if i := slices.Index(list, c); i >= 0 {
		n.showLocked(a, slices.Delete(slices.Clone(list), i, i+1))
	}
}

// showLocked publishes the connections of an address.
func (n *names) showLocked(a wire.Addr, list []*Conn) {
	if len(list) == 0 {
		n.shown.Delete(a)
		return
	}
	k := &known{conns: list, peers: make([]*session.Peer, len(list))}
	_, k.disproved = n.disproved[a]
	for i, c := range list {
		p := c.s.Peer
		k.peers[i] = &p
	}
	n.shown.Store(a, k)
}

// disproveLocked has no claim to an address be believed any more.
func (n *names) disproveLocked(a wire.Addr) {
	if len(n.disproved) >= disprovedMax {
		for a := range n.disproved {
			delete(n.disproved, a) // the next claim to it is checked again
			n.showLocked(a, n.at(a).conns)
		}
	}
	n.disproved[a] = struct{}{}
	n.showLocked(a, n.at(a).conns)
}

// livesLocked are the Lifecycles of connections.
func livesLocked(conns []*Conn) []*session.Lifecycle {
	list := make([]*session.Lifecycle, len(conns))
	for i, c := range conns {
		list[i] = c.s.Lifecycle
	}
	return list
}

// lookup returns the connection of an address that is not marked down. Any goroutine, a
// core's too.
func (n *names) lookup(a wire.Addr) (k known) {
	all := n.at(a)
	k.disproved = all.disproved
	for i, c := range all.conns {
		if !c.markedDown.Load() {
			k.conns, k.peers = append(k.conns, c), append(k.peers, all.peers[i])
		}
	}
	return k
}

// found is the connection that leads to an address, nil for none. Any goroutine, a
// core's too.
func (n *names) found(a wire.Addr) *Conn {
	k := n.lookup(a)
	if i := session.Found(a, k.peers, k.disproved); i >= 0 {
		return k.conns[i]
	}
	return nil
}

// to is the connection that Connect returns, nil if it has to dial. Claimed: only its peer
// says that it is at the address, so that the claim has to be checked. Any goroutine, a
// core's too.
func (n *names) to(a wire.Addr, want wire.EntityType, name wire.EntityName) (c *Conn, claimed bool, err error) {
	k := n.lookup(a)
	i := session.Found(a, k.peers, k.disproved)
	if name != (wire.EntityName{}) && (i < 0 || !k.peers[i].Dialled) {
		i = session.FoundAs(a, name, k.peers, k.disproved)
	}
	if i < 0 {
		return nil, false, nil
	}
	p := k.peers[i]
	switch wrong := p.Type != want || name != (wire.EntityName{}) && p.Entity != name && p.Entity != (wire.EntityName{}); {
	case !wrong:
		// The caller wants the peer with this proven name, wherever it is.
		return k.conns[i], !p.Dialled && (name == (wire.EntityName{}) || !p.Proven), nil
	case !p.Dialled:
		return nil, false, nil // it only says that it is there
	default:
		return nil, false, fmt.Errorf("%w: %v is connected as %v %v, not %v %v", session.ErrWrongPeer, a, p.Type, p.Entity, want, name)
	}
}

// renamedLocked follows the peer's addresses; the former first address no longer leads to the
// connection, unless it is the target. With Also the peer, which we dialled, finds the
// connection under the new first address: the peer comes back with it, whichever address was
// dialled.
func (n *names) renamedLocked(c *Conn, a session.Renamed) {
	if a.From != c.s.Peer.Target && a.From != a.To {
		n.removeLocked(a.From, c)
	}
	if a.Also && !a.To.IsBlank() {
		n.addLocked(a.To, c)
	}
	n.renameAliasLocked(c)
}

// renameAliasLocked lists the connection under the v1 address of its peer, which speaks
// msgr2, so that a socket from there finds the session of this process. Connect does not.
func (n *names) renameAliasLocked(c *Conn) {
	p := &c.s.Peer
	alias := c.s.speaks().alias(p)
	if p.Anonymous || c.s.Policy.Lossy && !c.s.Policy.Register {
		alias = wire.Addr{}
	}
	if alias == c.alias {
		return
	}
	if !c.alias.IsBlank() {
		n.removeLocked(c.alias, c)
	}
	if c.alias = alias; !alias.IsBlank() {
		n.addLocked(alias, c)
	}
}

// showPeerLocked publishes the peer of a connection, if a lookup gives another result than before.
func (n *names) showPeerLocked(c *Conn, before *session.Peer) {
	now := &c.s.Peer
	if now.FoundLike(before) {
		return
	}
	for _, a := range [2]wire.Addr{now.Target, now.Addrs.Front()} {
		if list := n.at(a).conns; slices.Contains(list, c) {
			n.showLocked(a, list)
		}
	}
}

// forgetLocked removes a connection from all of its addresses.
func (n *names) forgetLocked(c *Conn) {
	for _, a := range [3]wire.Addr{c.s.Peer.Target, c.s.Peer.Addrs.Front(), c.alias} {
		n.removeLocked(a, c)
	}
}

// meantLocked is the connection that a frame of an accepted socket is about, or that is in its
// way: one of its protocol, else one of the other protocol whose peer has that address, too.
func (n *names) meantLocked(from session.Sender, speaks protocol, peer *session.Peer) *Conn {
	front := from.Addrs.Front()
	var known []*Conn
	var foreign *Conn
	for _, c := range n.at(front).conns {
		switch {
		case c.s.speaks() == speaks:
			known = append(known, c)
		case foreign == nil && c.s.speaks().alias(&c.s.Peer) == front && c.s.Is(peer):
			foreign = c
		}
	}
	i := session.Meant(*peer, from.Addrs, livesLocked(known), func(i int) bool { return known[i].s.rules.Names(from.Cookie) })
	if i < 0 {
		return foreign
	}
	return known[i]
}

// sortedLocked are all connections in their order, so that loops over them have the same one in
// every run.
func (m *Manager) sortedLocked() []*Conn {
	list := make([]*Conn, 0, m.all.Len())
	for e := m.all.Front(); e != nil; e = e.Next() {
		list = append(list, e.Value.(*Conn))
	}
	return list
}

// claimCheck is the check of an address that the peer of an accepted connection says
// it has: package session2 has the question, and judges the answer. msgr1 has no question. It
// runs beside the session, on a socket of its own. The messenger's lock guards it.
type claimCheck struct {
	c       *Conn
	wanted  bool // Connect has returned the connection for that address
	running bool
	next    time.Time // not before
}

// checkClaimLocked checks the address that leads to a connection, if only its peer says so,
// now or when it is ready.
func checkClaimLocked(c *Conn, now time.Time) {
	k := c.claim
	if k == nil {
		k = &claimCheck{c: c}
		c.claim = k
	}
	k.wanted = !c.s.Peer.Dialled
	if !k.wanted || k.running || now.Before(k.next) {
		return
	}
	if c.s.rules.Question(nil) == nil || !c.m.work.Enter() {
		return
	}
	k.running = true
	c.out.PutLocked(func() { go k.run() })
}

// run is the goroutine of a check.
func (k *claimCheck) run() {
	m := k.c.m
	defer m.work.Leave()
	ev := k.ask()
	if _, reset := ev.Answer.(wire2.SessionReset); reset && k.awaitSettled() {
		ev = k.ask()
	}
	now := m.cfg.Clock.Now()
	m.lock()
	defer m.unlock()
	k.running, k.wanted, k.next = false, false, now.Add(m.cfg.Backoff.Max)
	k.c.s.stepLocked(ev)
}

// awaitSettled waits until the peer must have our SERVER_IDENT: before that it may not
// know the session that we have with it. It returns false if the peer had it already.
func (k *claimCheck) awaitSettled() bool {
	c, m := k.c, k.c.m
	m.lock()
	opened := c.s.opened
	m.unlock()
	left := m.cfg.Timeout - m.cfg.Clock.Now().Sub(opened)
	if left <= 0 {
		return false
	}
	settled, stop := m.withTimeout(m.ctx, left)
	defer stop()
	select {
	case <-settled.Done():
	case <-c.Closed():
	}
	return true
}

// ask dials the address, and asks for the session. Without an answer the event says nothing
// about the address.
func (k *claimCheck) ask() (ev session.Checked) {
	c, m := k.c, k.c.m
	ctx, cancel := m.withTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	m.lock()
	core, target, peerType := m.dialCoreLocked(c), c.s.Peer.Target, c.s.Peer.Type
	ev.Asked = c.s.rules.Question(m.addrs)
	m.unlock()
	if ev.Asked == nil {
		return ev
	}
	link, err := core.Dial(ctx, netip.AddrPort{}, target.AddrPort, uring.SocketOptions{})
	if err != nil {
		return ev
	}
	defer link.Close()
	t, err := m.connect2(ctx, &attempt{}, link, target, peerType)
	if err == nil {
		defer t.Wipe()
		if err = t.send(ctx, ev.Asked); err == nil {
			ev.Answer, err = t.receive(ctx)
		}
	}
	ev.Other = errors.Is(err, handshake.ErrPeerType)
	return ev
}
