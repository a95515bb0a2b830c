package storage

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
)

// cutter takes the stream of a raw connection apart: heads, and the data of writes, which
// goes to where the server wants it.
type cutter struct {
	size int64 // of the file
	// begin is told of a head, and says where its data goes, which is as much as that says.
	begin func(h blocks.Head) ([]byte, error)
	// whole is told when that is there.
	whole func() error

	part [blocks.HeadSize]byte
	n    int
	want []byte // what is still to come of the data
}

// take consumes received bytes.
func (c *cutter) take(p []byte) error {
	for len(p) > 0 {
		if len(c.want) > 0 {
			n := copy(c.want, p)
			p = p[n:]
			if err := c.filled(n); err != nil {
				return err
			}
			continue
		}
		n := copy(c.part[c.n:], p)
		c.n, p = c.n+n, p[n:]
		if c.n < len(c.part) {
			return nil
		}
		c.n = 0
		h, err := blocks.ParseHead(&c.part, c.size)
		if err != nil {
			return err
		}
		if want := h.Kind == blocks.Write; want != (h.Data > 0) || want && h.Data != h.Len {
			return fmt.Errorf("%w: %d bytes of data for %d", blocks.ErrBlock, h.Data, h.Len)
		}
		if c.want, err = c.begin(h); err != nil {
			return err
		}
		if len(c.want) == 0 {
			if err := c.whole(); err != nil {
				return err
			}
		}
	}
	return nil
}

// filled says that n bytes of want have come.
func (c *cutter) filled(n int) error {
	if c.want = c.want[n:]; len(c.want) > 0 || n == 0 {
		return nil
	}
	return c.whole()
}
