package rados_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
)

// A reader that is cut off says io.ErrUnexpectedEOF, such as the body of an HTTP response: what it had is
// written, and the copy says that it is not whole.
func TestACopyOfAReaderThatIsCutOffFails(t *testing.T) {
	ctx, o, object := startObject(t)
	check(t, object.WriteFull(ctx, nil))
	for _, cut := range []error{nil, io.ErrUnexpectedEOF, errCut} {
		text := []byte("this is the beginning")
		in := io.MultiReader(iotest.HalfReader(bytes.NewReader(text)), iotest.ErrReader(cut))
		if cut == nil {
			in = bytes.NewReader(text)
		}
		n, err := io.Copy(object.File(ctx), in)
		if !errors.Is(err, cut) || n != int64(len(text)) || !bytes.Equal(o.has(), text) {
			t.Errorf("cut off by %v: %d bytes, %v; the object has %q", cut, n, err, o.has())
		}
	}
}

var errCut = fmt.Errorf("cut off: %w", io.EOF)

// has is the content of the object.
func (o *osd) has() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.content
}
