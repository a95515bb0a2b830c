package frame

import (
	"fmt"
	"slices"
)

// keepScratch is the largest scratch buffer in bytes that a Decoder keeps.
const keepScratch = 256 << 10

// finishSecureRev1 opens operations B and C, each only if present (Ceph's crypto_onwire.cc).
func (d *Decoder) finishSecureRev1(f *Frame, head, rest []byte) error {
	if len(head) != headSizeSecure {
		return fmt.Errorf("%w: head of %d, need %d", ErrTruncated, len(head), headSizeSecure)
	}
	h := &f.Header
	tail, body := rest[:d.layout.inlineRest(h)], rest[d.layout.inlineRest(h):]
	if len(tail) > 0 {
		if _, err := d.dir.open(tail); err != nil {
			return fmt.Errorf("%w: segment 0", err)
		}
	}
	late := byte(lateComplete)
	if len(body) > 0 {
		plain, err := d.dir.open(body)
		if err != nil {
			return fmt.Errorf("%w: segments from 1 on", err)
		}
		for i := 1; i < h.Num; i++ {
			f.Seg[i] = takePadded(&plain, int(h.Len[i]))
		}
		late = plain[0]
	}
	f.Seg[0] = joinInline(head, tail, int(h.Len[0]))
	return d.status(f, late)
}

// joinInline makes one slice of segment 0, whose first bytes are in the head
// and whose others are at the start of tail, behind the tag of the head.
func joinInline(head, tail []byte, n int) []byte {
	if n <= inlineSize {
		return takeAt(head, PreambleSize, n)
	}
	inline := head[PreambleSize : PreambleSize+inlineSize]
	if whole := joined(head, tail); whole != nil {
		at := headSizeSecure - inlineSize
		copy(whole[at:headSizeSecure], inline) // over the tag, up to the tail
		return takeAt(whole, at, n)
	}
	seg := make([]byte, 0, n)
	seg = append(seg, inline...)
	return append(seg, tail[:n-inlineSize]...)
}

// finishSecureRev0 opens the whole frame as one operation (Ceph's crypto_onwire.cc).
func (d *Decoder) finishSecureRev0(f *Frame, head, rest []byte) error {
	if len(head) != PreambleSize {
		return fmt.Errorf("%w: head of %d, need %d", ErrTruncated, len(head), PreambleSize)
	}
	whole := joined(head, rest)
	together := whole != nil
	if !together {
		e := d.early
		e.scratch = slices.Grow(e.scratch[:0], len(head)+len(rest))
		e.scratch = append(append(e.scratch, head...), rest...)
		whole = e.scratch
	}
	plain, err := d.dir.open(whole)
	if err != nil {
		return err
	}
	h := &f.Header
	// Open has seen the same bytes before they were authenticated, if the
	// caller has kept to the contract.
	got, err := ParsePreamble(plain)
	if err != nil {
		return err
	}
	if got != *h {
		return fmt.Errorf("%w: header of %v does not belong to this frame", errMisuse, h.Tag)
	}
	if !together {
		copy(rest, plain[PreambleSize:])
		if cap(d.early.scratch) > keepScratch {
			d.early.scratch = nil
		}
	}
	for i := range h.Num {
		f.Seg[i] = takePadded(&rest, int(h.Len[i]))
	}
	return d.status(f, rest[0])
}

// joined returns a and b, which is not empty, as one slice if b directly follows a in
// the same buffer, else nil.
func joined(a, b []byte) []byte {
	n := len(a) + len(b)
	if cap(a) < n || &a[:n][len(a)] != &b[0] {
		return nil
	}
	return a[:n]
}

// takePadded cuts n bytes and their padding off the front of p.
func takePadded(p *[]byte, n int) []byte {
	b := takeAt(*p, 0, n)
	*p = (*p)[pad(uint64(n)):]
	return b
}

// takeAt is the n bytes from at on. Nothing is nil.
func takeAt(p []byte, at, n int) []byte {
	if n == 0 {
		return nil
	}
	return p[at : at+n : at+n]
}

// sealRev1 writes a frame of one to three operations (Ceph's crypto_onwire.cc).
func (e *Encoder) sealRev1(b []byte, h *Header, segs *[MaxSegments][]byte) {
	op := b[:headSizeSecure]
	putPreamble((*[PreambleSize]byte)(op), h)
	putPadded(op[PreambleSize:headSizeSecure-tagSize], segs[0][:min(len(segs[0]), inlineSize)])
	e.dir.seal(op)

	b = b[headSizeSecure:]
	if n := int(e.layout.inlineRest(h)); n > 0 {
		putPadded(b[:n-tagSize], segs[0][inlineSize:])
		e.dir.seal(b[:n])
		b = b[n:]
	}
	if h.Num > 1 {
		e.sealBody(b, 0, segs[1:h.Num])
	}
}

// sealBody makes b one operation, out of its first at bytes, padded segments and an epilogue block.
// Large segments are encrypted from where they lie; everything else is copied to b and encrypted there.
func (e *Encoder) sealBody(b []byte, at int, segs [][]byte) {
	c, chained := e.dir.chain, false
	from := 0 // of what is in b in clear
	for _, s := range segs {
		if len(s) >= chainFrom && c != nil {
			if !chained {
				c.begin(&e.dir.nonce.b)
				chained = true
			}
			if from < at {
				c.seal(b[from:], b[from:at])
			}
			n := len(s) &^ (blockSize - 1)
			c.seal(b[at:], s[:n])
			at += n
			from, s = at, s[n:]
		}
		n := int(pad(uint64(len(s))))
		putPadded(b[at:at+n], s)
		at += n
	}
	clear(b[at : at+blockSize])
	b[at] = lateByte(e.layout.rev)
	if !chained {
		e.dir.seal(b)
		return
	}
	at += blockSize
	c.seal(b[from:], b[from:at])
	c.finish(b[at:], at)
	e.dir.nonce.advance()
}

// putPadded fills b with s and zeros.
func putPadded(b, s []byte) { clear(b[copy(b, s):]) }
