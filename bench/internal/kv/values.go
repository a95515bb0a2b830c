package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// ErrValue says that a value is not the one that must be there.
var ErrValue = errors.New("wrong value")

// stampSize is what of a value says which one it is.
const stampSize = 16

// shifts is how many values have other bytes at each place.
const shifts = 509

// Values makes and checks values of one size. All of their bytes depend on the key and the
// generation, which is how often the key was put. Any goroutine may use it.
type Values struct {
	size    int
	pattern []byte
}

// NewValues makes those of size bytes.
func NewValues(size int) *Values {
	v := &Values{size: size, pattern: make([]byte, size+shifts)}
	_, _ = rand.NewChaCha8([32]byte{'k', 'v'}).Read(v.pattern) // never fails
	return v
}

// Size is how many bytes a value has.
func (v *Values) Size() int { return v.size }

func (v *Values) stamp(key int64, generation uint64) (s [stampSize]byte, rest []byte) {
	binary.LittleEndian.PutUint64(s[:], generation)
	binary.LittleEndian.PutUint64(s[8:], uint64(key))
	shift := (uint64(key)*31 + generation*17) % shifts
	return s, v.pattern[shift:]
}

// Fill makes a value in p, which has its size.
func (v *Values) Fill(p []byte, key int64, generation uint64) {
	s, rest := v.stamp(key, generation)
	n := copy(p, s[:])
	copy(p[n:], rest)
}

// Check looks at every byte of what was read. Error: ErrValue.
func (v *Values) Check(p []byte, key int64, generation uint64) error {
	if len(p) != v.size {
		return fmt.Errorf("%w of key %d: %d bytes, want %d", ErrValue, key, len(p), v.size)
	}
	s, rest := v.stamp(key, generation)
	n := min(len(p), stampSize)
	if !bytes.Equal(p[:n], s[:n]) {
		return fmt.Errorf("%w of key %d: its stamp is %x, want that of generation %d", ErrValue, key, p[:n], generation)
	}
	if !bytes.Equal(p[n:], rest[:len(p)-n]) {
		return fmt.Errorf("%w of key %d: bytes differ", ErrValue, key)
	}
	return nil
}

// AppendKey appends the name of a key: values of each size have keys of their own.
func (v *Values) AppendKey(to []byte, key int64) []byte {
	return fmt.Appendf(to, "%07d-%08d", v.size, key)
}
