// Package layout appends structures to bytes and reads them back, by one description of
// their fields, so that the two ways cannot differ. The encodings are those of package wire.
package layout

import (
	"encoding/binary"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Structure has a description of its fields.
type Structure interface {
	// Layout gives the fields to c, in the order of the wire.
	Layout(c *Coder)
}

// Append appends the fields of s.
func Append(dst []byte, s Structure) []byte {
	c := Coder{out: dst}
	s.Layout(&c)
	return c.out
}

// Read reads the fields of s. Slices of bytes alias the input. The error is that of r.
func Read(r *wire.Reader, s Structure) {
	c := Coder{in: r}
	s.Layout(&c)
}

// Reading is memory for a Read, which can be used again.
type Reading struct {
	c Coder
	r wire.Reader
}

// Read reads the fields of s from p, and returns the error.
func (w *Reading) Read(p []byte, s Structure) error {
	w.r = *wire.NewReader(p)
	w.c.in = &w.r
	s.Layout(&w.c)
	return w.r.Err()
}

// Coder appends fields, or reads them.
type Coder struct {
	out []byte
	in  *wire.Reader // nil: it appends
}

// Reader is the source of the fields, for checks that need one; nil: they are appended.
func (c *Coder) Reader() *wire.Reader { return c.in }

// Fields are the next fields, as pointers to them. A slice of bytes that is not behind a pointer
// has its length by the protocol, without one in front of it.
func (c *Coder) Fields(fields ...any) {
	for _, f := range fields {
		switch f := f.(type) {
		case *bool:
			one(c, f, wire.AppendBool, (*wire.Reader).Bool)
		case *uint8:
			one(c, f, appendByte, (*wire.Reader).U8)
		case *wire.EntityType:
			one(c, (*uint8)(f), appendByte, (*wire.Reader).U8)
		case *uint16:
			one(c, f, le.AppendUint16, (*wire.Reader).U16)
		case *uint32:
			one(c, f, le.AppendUint32, (*wire.Reader).U32)
		case *int32:
			one(c, f, appendS32, (*wire.Reader).S32)
		case *uint64:
			one(c, f, le.AppendUint64, (*wire.Reader).U64)
		case *int64:
			one(c, f, appendS64, (*wire.Reader).S64)
		case *wire.Features:
			one(c, (*uint64)(f), le.AppendUint64, (*wire.Reader).U64)
		case *string:
			one(c, f, wire.AppendString, (*wire.Reader).Str)
		case *[]byte:
			one(c, f, wire.AppendBlob, (*wire.Reader).Blob)
		case *[]uint32:
			one(c, f, wire.AppendU32s, (*wire.Reader).U32s)
		case *wire.EntityName:
			one(c, f, appended, (*wire.Reader).EntityName)
		case *wire.Addr:
			one(c, f, appended, (*wire.Reader).Addr)
		case *wire.AddrVec:
			one(c, f, appended, (*wire.Reader).AddrVec)
		case []byte:
			if c.in != nil {
				c.in.Copy(f)
			} else {
				c.out = append(c.out, f...)
			}
		default:
			panic("ringmsgr: broken invariant: a field of a type without an encoding")
		}
	}
}

// one reads or appends a field.
func one[T any](c *Coder, f *T, put func([]byte, T) []byte, read func(*wire.Reader) T) {
	if c.in != nil {
		*f = read(c.in)
	} else {
		c.out = put(c.out, *f)
	}
}

var le = binary.LittleEndian

func appendByte(dst []byte, v uint8) []byte { return append(dst, v) }
func appendS32(dst []byte, v int32) []byte  { return le.AppendUint32(dst, uint32(v)) }
func appendS64(dst []byte, v int64) []byte  { return le.AppendUint64(dst, uint64(v)) }

func appended[T interface{ AppendTo([]byte) []byte }](dst []byte, v T) []byte { return v.AppendTo(dst) }
