package frame

import "fmt"

// Compressor compresses segments. It is the hook for the algorithms that
// COMPRESSION_REQUEST and COMPRESSION_DONE can agree on (Ceph's compression_onwire.cc);
// this package contains none. An implementation is used by one Encoder and
// one Decoder; if it shares state between them it must lock.
type Compressor interface {
	// Compress appends the compressed form of src to dst. On an error the
	// frame is sent uncompressed. src must not be kept.
	Compress(dst, src []byte) ([]byte, error)
	// Decompress appends the original of src to dst. It must fail as soon as
	// there would be more than max bytes of it, without taking memory for
	// them. src comes from the peer; it must not be kept.
	Decompress(dst, src []byte, max int) ([]byte, error)
}

// keepPacked is the largest scratch buffer in bytes that an Encoder keeps.
const keepPacked = 256 << 10

// Compress switches compression on for all later frames with at least min
// bytes in all segments together, and off with a nil Compressor. Each segment
// that is not empty is compressed separately. A frame goes out plain if one of
// them fails, or if nothing would be saved on the wire.
func (e *Encoder) Compress(c Compressor, min int) { e.comp, e.compMin, e.head = c, min, Header{} }

// compress replaces body by its compressed form if that pays, adapts h, and
// returns the new size of the frame. size is that of the plain one.
func (e *Encoder) compress(h *Header, body *[MaxSegments][]byte, size int) int {
	sum := 0
	for _, s := range body {
		sum += len(s)
	}
	if sum < e.compMin {
		return size
	}
	packed := e.packed[:0]
	var lens [MaxSegments]int
	var ends [MaxSegments]int
	for i, s := range body {
		if len(s) > 0 {
			out, err := e.comp.Compress(packed, s)
			if err != nil || len(out) <= len(packed) {
				return size
			}
			lens[i] = len(out) - len(packed)
			packed = out
		}
		ends[i] = len(packed)
	}
	if cap(packed) <= keepPacked {
		e.packed = packed
	}
	small := Header{Flags: FlagCompressed}
	err := small.fill(h.Tag, &lens)
	n, ok := e.layout.frameSize(&small)
	if err != nil || !ok || n >= size {
		return size
	}
	*h = small
	for i := range body {
		body[i] = packed[ends[i]-lens[i] : ends[i]]
	}
	return n
}

// Decompress switches acceptance of compressed frames on, and off with a nil
// Compressor. Plain frames are accepted all the same. The Limits hold for the
// compressed segments and, enforced while decompressing, for the decompressed
// ones; so do the bounds of the tag, with some room for a segment 0 that grows
// when it is compressed (Bound.Packed). Decompressed segments are in fresh memory, which belongs to whoever has
// the Frame.
func (d *Decoder) Decompress(c Compressor) { d.comp, d.opened = c, Header{} }

// decompress replaces the segments of a verified frame. An aborted one has none.
func (d *Decoder) decompress(f *Frame) error {
	if d.comp == nil {
		return errCompressed
	}
	f.CRCs = CRCs{} // of the compressed bytes
	for i, s := range f.Seg {
		if len(s) == 0 {
			continue
		}
		limit, least := d.limits.of(i), uint32(0)
		if i == 0 {
			b := &d.bounds[f.Tag]
			limit, least = min(limit, b.Max), b.Min
		}
		// A slice is never longer than MaxInt, so neither is this bound on
		// machines with an int of 32 bits.
		bound := int(min(uint64(limit), maxInt))
		out, err := d.comp.Decompress(nil, s, bound)
		if err != nil {
			return fmt.Errorf("%w: segment %d: %w", ErrDecompress, i, err)
		}
		if len(out) > bound {
			return fmt.Errorf("%w: segment %d of %v decompressed, limit %d", ErrTooLarge, i, f.Tag, limit)
		}
		if len(out) == 0 {
			return fmt.Errorf("%w: segment %d: nothing in it", ErrDecompress, i)
		}
		if uint64(len(out)) < uint64(least) {
			return fmt.Errorf("%w: segment %d of %v has %d bytes decompressed, and needs %d", ErrTruncated, i, f.Tag, len(out), least)
		}
		f.Seg[i] = out
	}
	return nil
}
