package control

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The owner hint. An acceptor whose listeners are steered tells in its
// server_cookie which of its cores owns the session. A connector of this
// package reads that, and reconnects from a source port that leads there. It
// costs no frame and no byte: the cookie is a random number to everybody else.
//
// A cookie with a hint is 48 random bits R and 16 bits T = H(R) + I, where H
// is a public hash and I numbers the pair (core, cores). Without H, T is as
// random as R. With it, a cookie that no acceptor of this package made is taken
// for a hint with probability 2079/65536, about 3 %: the connector then binds
// a source port for nothing and all else goes its way.
//
// Whether a hint holds is not told by RECONNECT_OK, and the session does not
// depend on it: one that arrives at another core is moved there as without
// hints. What the connector can see is enough to stop where hints are useless:
// a bind that is refused, an acceptor that sees another port than the one that
// was bound (NAT), and the owner in the next cookie, when a hinted connection
// ends in a new session after all.

// maxHintCores is the largest number of cores that a cookie can carry.
const maxHintCores = 64

// errManyHints: the cores have numbers that a cookie cannot carry.
var errManyHints = fmt.Errorf("hints name at most %d cores", maxHintCores)

// hintPairs is the number of pairs (core, cores) with 2 to maxHintCores cores.
const hintPairs = maxHintCores*(maxHintCores+1)/2 - 1

// ownerHint says which core of how many owns a session at the peer. The zero
// value is none.
type ownerHint struct{ core, cores int }

func (h ownerHint) known() bool { return h.cores > 1 }

// cookie hides h among 48 bits of random. It may be 0: then draw again.
func (h ownerHint) cookie(random uint64) uint64 {
	r := random & (1<<48 - 1)
	index := h.cores*(h.cores-1)/2 - 1 + h.core
	return r<<16 | uint64(hintMask(r)+uint16(index))
}

// parseHint finds the hint in a cookie.
func parseHint(cookie uint64) ownerHint {
	index := int(uint16(cookie) - hintMask(cookie>>16))
	if cookie == 0 || index >= hintPairs {
		return ownerHint{}
	}
	cores := 2
	for index >= cores {
		index -= cores
		cores++
	}
	return ownerHint{core: index, cores: cores}
}

// hintMask is H. It keeps nothing secret; it only leaves nothing to see for who
// does not look for it.
func hintMask(r uint64) uint16 {
	var b [16]byte
	copy(b[:], "ownerhnt")
	binary.LittleEndian.PutUint64(b[8:], r)
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint16(sum[:])
}

// newServerCookie is random, and carries owner if peers can reach it by a hint.
// The lock is held.
func (m *Messenger) newServerCookie(owner *dataplane.Core) uint64 {
	if !m.steer.takesHints() || owner.ID() >= m.steer.policy.Cores || !m.steer.live(owner.ID()) {
		return m.random64()
	}
	h := ownerHint{core: owner.ID(), cores: m.steer.policy.Cores}
	for {
		if c := h.cookie(m.random64()); c != 0 {
			m.counters.Hints.Given++
			return c
		}
	}
}

// HintCounters count what became of owner hints, on both sides.
type HintCounters struct {
	// Given are the sessions that we accepted with the owner in their cookie.
	Given uint64 `json:"given"`
	// Dialled are the TCP connections that we made from a hinted port; Busy
	// the ports that were taken, Gone the dials that found none free.
	Dialled uint64 `json:"dialled"`
	Busy    uint64 `json:"busy"`
	Gone    uint64 `json:"gone"`
	// Refused are hinted ports that we may not bind, Translated those that the
	// peer saw as another one (NAT). Both end hints to that peer for a while.
	Refused    uint64 `json:"refused"`
	Translated uint64 `json:"translated"`
	// Confirmed and Contradicted are the hinted connections after which the
	// peer named its owner anew: the hinted core, or another one, which ends
	// hints to it for a while, too.
	Confirmed    uint64 `json:"confirmed"`
	Contradicted uint64 `json:"contradicted"`
}

const (
	// hintAttempts bounds the ports that one dial tries.
	hintAttempts = 16
	// hintPause is how long a peer gets no hints after they were of no use.
	hintPause = time.Hour
	// hintPauses bounds the peers that are remembered for that.
	hintPauses = 1024
)

// hinting is what the connector knows of the peer's owner core. It is guarded
// by the messenger's lock.
type hinting struct {
	to ownerHint
	// doubt says that the last dial was hinted, and the peer was silent. A
	// firewall may let ordinary ports pass only: the next dial uses one.
	doubt bool
}

// hintedPorts are the source addresses to try for the next dial of c, in order;
// none if there is no hint to follow.
func (m *Messenger) hintedPorts(c *Conn) []netip.AddrPort {
	m.mu.Lock()
	to, doubt := c.hint.to, c.hint.doubt
	c.hint.doubt = false
	peer := c.target.AddrPort.Addr().Unmap()
	use := to.known() && !doubt && m.cfg.followHints && !m.hintsPaused(peer)
	m.mu.Unlock()
	if !use {
		return nil
	}
	ports, err := m.cfg.hintRange(to.cores)
	if err != nil {
		return nil // this machine has no port to spare
	}
	from := netip.IPv6Unspecified()
	if peer.Is4() {
		from = netip.IPv4Unspecified()
	}
	list := make([]netip.AddrPort, 0, hintAttempts)
	start := rand.IntN(1 << 16) // spreads; nobody depends on it
	for i := range hintAttempts {
		port := bpf.HintPort(ports, to.core, to.cores, start+i)
		if port == 0 || i > 0 && port == list[0].Port() {
			break
		}
		list = append(list, netip.AddrPortFrom(from, port))
	}
	return list
}

// dialSocket connects to the peer, by a hinted port if there is one.
func (d *dialling) dialSocket() (*dataplane.Link, error) {
	c, m := d.c, d.c.m
	for {
		m.mu.Lock()
		core := m.dialCore(c)
		m.mu.Unlock()
		link, err := d.dialFrom(core)
		if !errors.Is(err, dataplane.ErrStopped) || core.State() == dataplane.CoreRunning || len(m.running()) == 0 || d.ctx.Err() != nil {
			return link, err
		}
		// The core was removed meanwhile, or has failed: another one dials.
		d.hinted = 0
	}
}

// dialFrom dials from a core.
func (d *dialling) dialFrom(core *dataplane.Core) (*dataplane.Link, error) {
	c, m := d.c, d.c.m
	to := c.target.AddrPort
	ports := m.hintedPorts(c)
	for _, local := range ports {
		link, err := core.Dial(d.ctx, local, to, uring.SocketOptions{})
		switch {
		case err == nil:
			d.hinted = local.Port()
			m.mu.Lock()
			m.counters.Hints.Dialled++
			c.counters.Hinted++
			m.mu.Unlock()
			return link, nil
		case errors.Is(err, unix.EADDRINUSE), errors.Is(err, unix.EADDRNOTAVAIL):
			m.countHint(func(n *HintCounters) { n.Busy++ })
			continue
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			m.mu.Lock()
			m.pauseHints(c, "refused", func(n *HintCounters) { n.Refused++ })
			m.mu.Unlock()
		case errors.Is(err, unix.ECONNREFUSED):
			return nil, err // an answer: the port is not to blame
		default:
			d.hinted = local.Port()
			d.doubtHint()
			return nil, err
		}
		ports = nil
		break
	}
	if len(ports) > 0 {
		m.countHint(func(n *HintCounters) { n.Gone++ })
	}
	return core.Dial(d.ctx, netip.AddrPort{}, to, uring.SocketOptions{})
}

func (m *Messenger) countHint(count func(*HintCounters)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count(&m.counters.Hints)
}

// doubtHint is called when a dial or a handshake failed. An attempt that was
// overtaken says nothing about its port.
func (d *dialling) doubtHint() {
	m := d.c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.hinted != 0 && d.peer == nil && d.a.ctx.Err() == nil {
		d.c.hint.doubt = true
	}
}

// checkHint looks at what the peer's HELLO says about a hinted port. The lock
// is held.
func (d *dialling) checkHint() {
	if d.hinted == 0 {
		return
	}
	if seen := d.peer.SeenAs; !seen.IsBlank() && seen.AddrPort.Port() != d.hinted {
		d.c.m.pauseHints(d.c, "translated", func(n *HintCounters) { n.Translated++ })
	}
}

// adoptHint takes over what the cookie of SERVER_IDENT says, and compares it
// with the hint that was followed. The lock is held.
func (d *dialling) adoptHint(cookie uint64) {
	c, old := d.c, d.c.hint.to
	c.hint.to = parseHint(cookie)
	if d.hinted == 0 || c.hint.to.cores != old.cores {
		return // nothing was promised, or the peer has another shape now
	}
	if c.hint.to == old {
		c.m.counters.Hints.Confirmed++
	} else {
		c.m.pauseHints(c, "contradicted", func(n *HintCounters) { n.Contradicted++ })
	}
}

// pauseHints ends hints to the host of c's peer for a while. The lock is held.
func (m *Messenger) pauseHints(c *Conn, why string, count func(*HintCounters)) {
	count(&m.counters.Hints)
	peer := c.target.AddrPort.Addr().Unmap()
	if m.noHints == nil || len(m.noHints) >= hintPauses {
		m.noHints = make(map[netip.Addr]time.Time)
	}
	m.noHints[peer] = m.cfg.Clock.Now().Add(hintPause)
	m.cfg.Logger.Info("owner hints do not hold", "peer", peer, "why", why, "pause", hintPause)
}

// hintsPaused says whether the host gets no hints. The lock is held.
func (m *Messenger) hintsPaused(peer netip.Addr) bool {
	until, ok := m.noHints[peer]
	if ok && !m.cfg.Clock.Now().Before(until) {
		delete(m.noHints, peer)
		return false
	}
	return ok
}
