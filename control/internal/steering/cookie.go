package steering

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/bpf"
)

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
