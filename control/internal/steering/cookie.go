package steering

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/bpf"
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

// hintMask is H. It keeps nothing secret: with it the cookie looks random to
// everybody who does not compute it.
func hintMask(r uint64) uint16 {
	var b [16]byte
	copy(b[:], "ownerhnt")
	binary.LittleEndian.PutUint64(b[8:], r)
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint16(sum[:])
}

// hintRange is the range of hinted ports for a peer, or for us, with so many
// cores: the configured one if there is one. Both ends must come to the same
// one: it depends on their settings and on nothing else.
func hintRange(configured bpf.PortRange, cores int) (bpf.PortRange, error) {
	if configured != (bpf.PortRange{}) {
		return configured, nil
	}
	return bpf.LocalHintRange(cores)
}
