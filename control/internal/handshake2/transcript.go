package handshake2

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
)

// maxTranscript bounds what both sides together send before authentication is done, in
// bytes. Real handshakes need two or three thousand.
const maxTranscript = 256 << 10

// transcript records the raw bytes of both directions from the first byte of the banner
// up to AUTH_DONE (Ceph's ProtocolV2.cc). Received bytes are recorded when they are
// consumed, not when they arrive: the peer's signature may be in the link already.
type transcript struct {
	on bool
	rx []byte
	tx []byte
}

// room fails if n more bytes would exceed the bound. It is asked before they are read.
func (t *transcript) room(n int) error {
	if t.on && n > maxTranscript-len(t.rx)-len(t.tx) {
		return fmt.Errorf("%w: more than %d bytes before the signatures", ErrTooLong, maxTranscript)
	}
	return nil
}

func (t *transcript) received(p []byte) {
	if t.on {
		t.rx = append(t.rx, p...)
	}
}

func (t *transcript) sent(p []byte) {
	if t.on {
		t.tx = append(t.tx, p...)
	}
}

// signatures ends the recording and returns the signature to send, which covers the
// received bytes, and the one to expect, which covers the sent bytes. Both are zero without
// a key.
func (t *transcript) signatures(key []byte) (own, peer wire2.AuthSignature) {
	if len(key) > 0 {
		own, peer = sign(key, t.rx), sign(key, t.tx)
	}
	t.stop()
	return own, peer
}

// stop ends the recording and drops it.
func (t *transcript) stop() { *t = transcript{} }

func sign(key, p []byte) (sig wire2.AuthSignature) {
	mac := hmac.New(sha256.New, key)
	mac.Write(p)
	mac.Sum(sig[:0])
	return sig
}
