package frame

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

// sealRev0 writes a frame of one operation (Ceph's crypto_onwire.cc).
func (e *Encoder) sealRev0(b []byte, h *Header, segs *[MaxSegments][]byte) {
	putPreamble((*[PreambleSize]byte)(b), h)
	e.sealBody(b, PreambleSize, segs[:h.Num])
}

// sealBody makes b one operation, out of its first at bytes, padded segments
// and an epilogue block. Large segments are encrypted from where they lie; the
// others, and what stands around the large ones, are brought together in b and
// encrypted there.
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
