package linktest

import (
	"bytes"
	"encoding/binary"
	"runtime"
)

// Spoiled calls try with p changed in every way that a length or a count can be: each 1, 2, 4
// and 8 bytes of it set to 0, 1 and values that overflow or are negative, and p cut everywhere.
func Spoiled(p []byte, try func(q []byte)) {
	for at := range p {
		for _, width := range []int{1, 2, 4, 8} {
			if at+width > len(p) {
				continue
			}
			top := uint64(1) << (8*width - 1)
			for _, v := range []uint64{0, 1, top - 1, top, 2*top - 1, 2*top - 2, 1<<31 - 1, 1 << 31, 1 << 16, uint64(len(p))} {
				q := bytes.Clone(p)
				var value [8]byte
				binary.LittleEndian.PutUint64(value[:], v)
				if copy(q[at:], value[:width]); !bytes.Equal(q, p) {
					try(q)
				}
			}
		}
		try(bytes.Clone(p[:at]))
	}
}

// Allocated is what f takes from the heap, in bytes.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
