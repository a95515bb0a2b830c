package rados

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// File is an object as the interfaces of package io want it: io.ReaderAt, io.WriterAt, io.Reader, io.Writer,
// io.Seeker and io.ReaderFrom. Its position belongs to one goroutine; ReadAt and WriteAt, which do without,
// may be called by any.
type File struct {
	ctx context.Context
	o   Object
	at  int64
}

// File returns the object as a file whose operations end with ctx. Nothing is opened: errors come from its
// methods.
func (o Object) File(ctx context.Context) *File { return &File{ctx: ctx, o: o} }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "readat", Path: f.o.name, Err: errOffset}
	}
	n, err := f.o.ReadInto(f.ctx, uint64(off), p)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

var errOffset = errors.New("negative offset")

// WriteAt implements io.WriterAt.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "writeat", Path: f.o.name, Err: errOffset}
	}
	if len(p) == 0 {
		return 0, nil
	}
	return f.o.pieces(f.ctx, osdop.CodeWrite, uint64(off), p)
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.ReadAt(p, f.at)
	if f.at += int64(n); n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.at)
	f.at += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom: it writes all that r has, in pieces of 4 MiB.
func (f *File) ReadFrom(r io.Reader) (total int64, err error) {
	for err == nil {
		p := make([]byte, 4<<20) // not used again: a write that fails may be on its way still
		n := 0
		for n < len(p) && err == nil { // not io.ReadFull, which hides that r itself was cut off
			var got int
			got, err = r.Read(p[n:])
			n += got
		}
		wrote, failed := f.Write(p[:n])
		if total += int64(wrote); failed != nil {
			return total, failed
		}
	}
	if err == io.EOF {
		err = nil
	}
	return total, err
}

// Seek implements io.Seeker. io.SeekEnd asks the cluster for the size.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		info, err := f.o.Stat(f.ctx)
		if err != nil {
			return f.at, err
		}
		if info.Size > math.MaxInt64 {
			return f.at, fmt.Errorf("%w: an object of %d bytes", ErrMessage, info.Size)
		}
		offset += int64(info.Size)
	default:
		return f.at, &fs.PathError{Op: "seek", Path: f.o.name, Err: fs.ErrInvalid}
	}
	if offset < 0 {
		return f.at, &fs.PathError{Op: "seek", Path: f.o.name, Err: errOffset}
	}
	f.at = offset
	return offset, nil
}
