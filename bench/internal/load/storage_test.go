package load

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// A server that checks nothing itself is found out by its client: a block of another place
// at once, and any other byte in the sample.
// Matrix: BE-08
func TestReadsOfAServerThatChecksNothingAreChecked(t *testing.T) {
	const size = 64 * blocks.Size
	for name, c := range map[string]struct {
		answer int // that is wrong; 0: none
		spoil  func(p []byte, off int64)
	}{
		"right":        {0, nil},
		"elsewhere":    {2, func(p []byte, off int64) { blocks.Fill(p, off+blocks.Size, 1) }},
		"a wrong byte": {SampleMask + 1, func(p []byte, _ int64) { p[2000] ^= 1 }},
	} {
		addr := serve(t, func(conn net.Conn) {
			var head [blocks.HeadSize]byte
			for n := 1; ; n++ {
				if _, err := io.ReadFull(conn, head[:]); err != nil {
					return
				}
				h, err := blocks.ParseHead(&head, size)
				if err != nil {
					return
				}
				h.Data = h.Len
				h.Put(&head)
				data := make([]byte, h.Len)
				blocks.Fill(data, h.Off, 1)
				if n == c.answer {
					c.spoil(data, h.Off)
				}
				if _, err := conn.Write(append(head[:], data...)); err != nil {
					return
				}
			}
		})
		o := StorageOptions{Options: Options{Addr: addr, Raw: true, Conns: 1, Depth: 1, Size: blocks.Size}, Kind: blocks.Read, File: size}
		l, err := OpenStorage(t.Context(), o)
		clitest.Must(t, err)
		wrong, window := c.answer > 0, 50*time.Millisecond
		if wrong {
			window = time.Minute // the wrong answer ends it, however slow the machine is
		}
		_, err = l.Run(Slice{WarmMax: time.Minute, Window: window, WindowMax: time.Minute})
		l.Close()
		if errors.Is(err, ErrReply) != wrong || err != nil && !wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}
