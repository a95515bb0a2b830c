package frame

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// lastNonces presets the nonces so that only n operations are left.
func lastNonces(dir *direction, n uint64) {
	dir.nonce.used = true
	dir.nonce.init = dir.nonce.counter() + n
	if !dir.nonce.wide {
		dir.nonce.init &= math.MaxUint32
	}
}

// Matrix: FR-22
func TestNonceIsNeverUsedTwice(t *testing.T) {
	for _, m := range []mode{modes[1], modes[3]} {
		// header only: one operation; all segments: three in revision 1.
		for _, c := range []struct {
			segs [4][]byte
			ops  uint64
		}{
			{[4][]byte{pattern(48, 1)}, 1},
			{[4][]byte{pattern(49, 1)}, 2},
			{[4][]byte{pattern(41, 1), pattern(1, 2)}, 2},
			{threeFull, 3},
		} {
			if m.rev == Rev0 {
				c.ops = 1
			}
			enc := m.encoder(t)
			if left := enc.dir.nonce.left(); left < 1<<32 {
				t.Fatalf("%d operations at the start", left)
			}
			lastNonces(enc.dir, 2*c.ops+c.ops-1)
			before := enc.dir.nonce.b
			var wire []byte
			var err error
			for range 2 {
				if wire, err = enc.AppendFrame(wire, TagMessage, c.segs[:]...); err != nil {
					t.Fatal(err)
				}
			}
			if enc.dir.nonce.b == before {
				t.Fatal("nonce did not advance")
			}
			if c.ops == 1 && enc.dir.nonce.counter() != enc.dir.nonce.init {
				t.Fatal("the counter should be back where it began")
			}
			now := enc.dir.nonce.b
			for range 3 {
				again, err := enc.AppendFrame(wire, TagMessage, c.segs[:]...)
				wantErr(t, err, errNonceExhausted)
				if len(again) != len(wire) || enc.dir.nonce.b != now {
					t.Fatal("refused frame left traces")
				}
			}
		}
		d, f := m.decoder(t), newRefFrame(m.rev, TagAck, pattern(8, 0))
		lastNonces(d.dir, 0)
		wantErr(t, decodeErr(d, f.wire(m.rev, m.crypt())), errNonceExhausted)
	}
}

// Matrix: FR-21
func TestKeysFromSecret(t *testing.T) {
	secret := pattern(64, 1)
	c, err := KeysFromSecret(secret, true)
	must(t, err)
	a, err := KeysFromSecret(secret[:40], false)
	must(t, err)
	if c.Key != a.Key || c.RxNonce != a.TxNonce || c.TxNonce != a.RxNonce {
		t.Fatal("ends do not match")
	}
	if !bytes.Equal(c.Key[:], secret[:16]) || !bytes.Equal(c.RxNonce[:], secret[16:28]) || !bytes.Equal(c.TxNonce[:], secret[28:40]) {
		t.Fatal("wrong parts of the secret")
	}
	wantErr(t, errOf(KeysFromSecret(secret[:39], true)), ErrKeys)
	c.Wipe()
	if c != (Keys{}) {
		t.Fatal("keys not wiped")
	}
}

// Keys are set once. After Wipe nothing goes out, least of all in clear.
func TestWipe(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		e, d := m.encoder(t), m.decoder(t)
		f := newRefFrame(m.rev, TagAck, pattern(8, 0))
		wire := f.wire(m.rev, m.crypt())
		var c *chain
		if m.secure {
			wantErr(t, e.Secure(testKey, testNonce), ErrKeys)
			wantErr(t, d.Secure(testKey, testNonce), ErrKeys)
			_, err := e.AppendFrame(nil, TagMessage, pattern(41, 1), pattern(9, 1), nil, pattern(chainFrom, 2))
			must(t, err)
			if c = e.dir.chain; c.h == (gf128{}) || c.before == [blockSize]byte{} {
				t.Fatal("the chain was not used")
			}
		}
		must(t, decodeErr(d, wire))
		e.packed = []byte("plain")
		plain := [][]byte{e.packed}
		if d.early != nil {
			d.early.scratch = []byte("plain")
			plain = append(plain, d.early.scratch)
		}
		e.Wipe()
		d.Wipe()
		for _, p := range plain {
			if !bytes.Equal(p, make([]byte, len(p))) {
				t.Errorf("%q is left", p)
			}
		}
		b, err := e.AppendFrame(nil, TagAck, pattern(8, 0))
		_, _, derr := decode(d, wire, false)
		if !m.secure {
			if err != nil || derr != nil || !bytes.Equal(b, wire) {
				t.Fatalf("crc mode has nothing to wipe: %v, %v", err, derr)
			}
			return
		}
		wantErr(t, err, ErrKeys)
		wantErr(t, derr, ErrKeys)
		if len(b) != 0 || !e.layout.secure || !d.IsSecure() || e.Gathers() || e.layout.rev != m.rev || d.Rev() != m.rev {
			t.Fatal("fell back to plain text")
		}
		if e.dir.aead != nil || e.dir.block != nil || e.dir.nonce != (nonce{}) || d.dir.aead != nil || d.dir.counterBlock != [blockSize]byte{} ||
			*c != (chain{}) || e.dir.chain != nil {
			t.Fatal("key material left")
		}
		if err := e.Secure(testKey, testNonce); !errors.Is(err, ErrKeys) {
			t.Fatal("keys set again: ", err)
		}
	})
}
