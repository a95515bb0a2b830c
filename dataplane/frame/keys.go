package frame

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Keys is the key material of one TCP connection in secure mode (Ceph's crypto_onwire.cc). It
// belongs to the connection on which it was negotiated, in the role that was played there, for
// as long as the connection lives.
type Keys struct {
	Key     [16]byte // AES-128, both directions
	RxNonce [12]byte // of the first frame received
	TxNonce [12]byte // of the first frame sent
}

// connection_secret: 16 bytes of key, 12 of nonce for acceptor to connector,
// 12 for connector to acceptor; the rest is unused.
const minSecretSize = 40

// KeysFromSecret takes the keys out of a connection_secret. connector tells
// whether this side opened the TCP connection. The secret is not changed; its
// owner should clear it.
//
// Errors: ErrKeys if the secret has less than 40 bytes.
func KeysFromSecret(secret []byte, connector bool) (Keys, error) {
	var k Keys
	if len(secret) < minSecretSize {
		return k, fmt.Errorf("%w: connection secret of %d bytes, need %d", ErrKeys, len(secret), minSecretSize)
	}
	copy(k.Key[:], secret)
	toConnector, toAcceptor := secret[16:28], secret[28:40]
	if connector {
		copy(k.RxNonce[:], toConnector)
		copy(k.TxNonce[:], toAcceptor)
	} else {
		copy(k.RxNonce[:], toAcceptor)
		copy(k.TxNonce[:], toConnector)
	}
	return k, nil
}

// Wipe overwrites the keys with zeros.
func (k *Keys) Wipe() { *k = Keys{} }

// nonce is the nonce of one direction. It advances after every AEAD operation
// and never comes back to the value it started with (Ceph's crypto_onwire.cc).
// The start is random, so the counter wraps in normal operation.
type nonce struct {
	b    [12]byte
	wide bool   // revision 1: 64-bit counter in bytes 4..11, else 32 bits in 0..3
	init uint64 // counter of the first operation
	used bool   // at least one operation was done
}

func newNonce(b [12]byte, rev Revision) nonce {
	n := nonce{b: b, wide: rev != Rev0}
	n.init = n.counter()
	return n
}

func (n *nonce) counter() uint64 {
	if n.wide {
		return binary.LittleEndian.Uint64(n.b[4:])
	}
	return uint64(binary.LittleEndian.Uint32(n.b[:]))
}

// left is the number of operations before the initial nonce would come again.
func (n *nonce) left() uint64 {
	switch diff := n.init - n.counter(); {
	case !n.used:
		return math.MaxUint64 // more than anybody needs
	case n.wide:
		return diff
	default:
		return diff & math.MaxUint32
	}
}

func (n *nonce) advance() {
	n.used = true
	if n.wide {
		binary.LittleEndian.PutUint64(n.b[4:], n.counter()+1)
	} else {
		binary.LittleEndian.PutUint32(n.b[:], uint32(n.counter())+1)
	}
}
