package steering

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

const (
	// HintAttempts bounds the ports that one dial tries.
	HintAttempts = 16
	// HintPause is how long a host gets no hints after they were of no use.
	HintPause = time.Hour
	// hintPauses bounds the hosts that are remembered for that.
	hintPauses = 1024
)

// HintCounts count the outcomes of owner hints, on both sides.
type HintCounts struct {
	// Given are the sessions that we accepted with the owner in their cookie.
	Given uint64 `json:"given"`
	// Dialled are the TCP connections that we made from a hinted port; Busy
	// the ports that were taken, Gone the dials that found none free.
	Dialled uint64 `json:"dialled"`
	Busy    uint64 `json:"busy"`
	Gone    uint64 `json:"gone"`
	// Refused are hinted ports that we may not bind, Translated are ports that the
	// peer saw as others (NAT). Both end hints to that peer for a while.
	Refused    uint64 `json:"refused"`
	Translated uint64 `json:"translated"`
	// Confirmed and Contradicted are the hinted connections after which the
	// peer named its owner anew: the hinted core, or another one, which ends
	// hints to it for a while, too.
	Confirmed    uint64 `json:"confirmed"`
	Contradicted uint64 `json:"contradicted"`
}

// HintsConfig says how hints are followed.
type HintsConfig struct {
	Follow bool          // dial from hinted ports at all
	Ports  bpf.PortRange // as in Config
	Now    func() time.Time
	Lines  *loop.RationedLogger // about hints that do not hold
}

// Hints is the knowledge of the connectors of one messenger about owner hints: the hosts
// for which they are useless, and the outcomes of followed hints. Its lock is held for a
// few memory accesses only, so its methods may be called under another lock; Pause alone
// writes a log line.
type Hints struct {
	cfg HintsConfig

	mu     sync.Mutex
	counts HintCounts               // guarded by mu
	paused map[netip.Addr]time.Time // hosts without hints, and until when; guarded by mu
}

// NewHints makes an empty Hints.
func NewHints(cfg HintsConfig) *Hints { return &Hints{cfg: cfg} }

// Count changes the counters.
func (h *Hints) Count(change func(*HintCounts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.counts)
}

// Counts are the counters now.
func (h *Hints) Counts() HintCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// Ports are the source addresses to try, in order, for a dial to peer whose session has this
// owner; none if there is no hint to follow.
func (h *Hints) Ports(to Owner, peer netip.Addr) []netip.AddrPort {
	peer = peer.Unmap()
	if !to.Known() || !h.cfg.Follow || h.Paused(peer) {
		return nil
	}
	ports, err := hintRange(h.cfg.Ports, to.Cores)
	if err != nil {
		return nil // this machine has no port to spare
	}
	from := netip.IPv6Unspecified()
	if peer.Is4() {
		from = netip.IPv4Unspecified()
	}
	list := make([]netip.AddrPort, 0, HintAttempts)
	start := rand.IntN(1 << 16) // it only spreads the choice: it need not be secure
	for i := range HintAttempts {
		port := bpf.HintPort(ports, to.Core, to.Cores, start+i)
		if port == 0 || i > 0 && port == list[0].Port() {
			break
		}
		list = append(list, netip.AddrPortFrom(from, port))
	}
	return list
}

// Pause ends hints to a host for a while, counts that, and logs why.
func (h *Hints) Pause(peer netip.Addr, why string, count func(*HintCounts)) {
	peer = peer.Unmap()
	until := h.cfg.Now().Add(HintPause)
	h.mu.Lock()
	count(&h.counts)
	if h.paused == nil || len(h.paused) >= hintPauses {
		h.paused = make(map[netip.Addr]time.Time)
	}
	h.paused[peer] = until
	h.mu.Unlock()
	h.cfg.Lines.Info("owner hints do not hold", "peer", peer, "why", why, "pause", HintPause)
}

// Paused says whether the host gets no hints.
func (h *Hints) Paused(peer netip.Addr) bool {
	peer, now := peer.Unmap(), h.cfg.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.paused[peer]
	if ok && !now.Before(until) {
		delete(h.paused, peer)
		return false
	}
	return ok
}

// The owner hint. The server_cookie of an acceptor with steered listeners names the core
// that owns the session. A connector of this package reads it, and reconnects from a
// source port that leads there. The hint costs no frame and no byte: to every other peer
// the cookie is a random number.
//
// A cookie with a hint is 48 random bits R and 16 bits T = H(R) + I, where H
// is a public hash and I numbers the pair (core, cores). Without H, T is as
// random as R. With it, a cookie that no acceptor of this package made is taken
// for a hint with probability 2079/65536, about 3 %: the connector then binds
// a source port for nothing and all else goes its way.
//
// RECONNECT_OK does not say whether a hint holds, and the session does not depend on it:
// a connection that arrives at another core is moved as without hints. The connector
// stops to use hints where they are useless. It sees that from a refused bind, from an
// acceptor that sees another port than the bound one (NAT), and from the owner in the next
// cookie, when a hinted connection ends in a new session after all.

// maxHintCores is the largest number of cores that a cookie can carry.
const maxHintCores = 64

// errManyHints: the cores have numbers that a cookie cannot carry.
var errManyHints = fmt.Errorf("hints name at most %d cores", maxHintCores)

// hintPairs is the number of pairs (core, cores) with 2 to maxHintCores cores.
const hintPairs = maxHintCores*(maxHintCores+1)/2 - 1

// Owner says which core of how many owns a session at its acceptor. The zero
// value is no hint.
type Owner struct{ Core, Cores int }

// Known says whether there is a hint.
func (o Owner) Known() bool { return o.Cores > 1 }

// Cookie hides o among 48 bits of random. It may be 0: then draw again.
func (o Owner) Cookie(random uint64) uint64 {
	r := random & (1<<48 - 1)
	index := o.Cores*(o.Cores-1)/2 - 1 + o.Core
	return r<<16 | uint64(hintMask(r)+uint16(index))
}

// ParseCookie finds the hint in a cookie.
func ParseCookie(cookie uint64) Owner {
	index := int(uint16(cookie) - hintMask(cookie>>16))
	if cookie == 0 || index >= hintPairs {
		return Owner{}
	}
	cores := 2
	for index >= cores {
		index -= cores
		cores++
	}
	return Owner{Core: index, Cores: cores}
}

// hintMask is H. It is no secret: it makes the cookie look random to peers that do not
// compute it.
func hintMask(r uint64) uint16 {
	var b [16]byte
	copy(b[:], "ownerhnt")
	binary.LittleEndian.PutUint64(b[8:], r)
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint16(sum[:])
}

// hintRange is the range of hinted ports for a peer, or for us, with this number of cores:
// the configured one if there is one. Both ends must compute the same range: it depends on
// their settings and on nothing else.
func hintRange(configured bpf.PortRange, cores int) (bpf.PortRange, error) {
	if configured != (bpf.PortRange{}) {
		return configured, nil
	}
	return bpf.LocalHintRange(cores)
}
