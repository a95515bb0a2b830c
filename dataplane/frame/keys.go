package frame

import "fmt"

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
