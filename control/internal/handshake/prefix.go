package handshake

import (
	"context"
	"errors"
	"io"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// readBannerPrefix reads the first bytes of the peer's banner one at a time, so that a
// peer that speaks something else is told with its first wrong byte. It would wait for
// our answer else, and hold a place among the half-open connections up to the deadline.
// The two bytes behind the magic can be anything and come together.
func (s *Stream) readBannerPrefix(ctx context.Context) ([]byte, error) {
	p := probe.Point{Step: probe.BannerRead}
	if err := s.before(ctx, p); err != nil {
		return nil, err
	}
	const size, length = wire2.BannerPrefixSize, 2
	if err := s.growIn(size); err != nil {
		return nil, err
	}
	for got := 0; got < size; {
		n := 1
		if got == size-length {
			n = length
		}
		if err := s.readFull(ctx, s.in[got:got+n]); err != nil {
			return nil, within(got, err)
		}
		got += n
		if err := wire2.CheckBanner(s.in[:got]); err != nil {
			return nil, err
		}
	}
	return s.in[:size], s.after(ctx, p)
}

// within makes the end of the stream an unexpected one if it comes behind the first
// byte of what is read in parts.
func within(got int, err error) error {
	if got > 0 && errors.Is(err, io.EOF) {
		return transport(io.ErrUnexpectedEOF)
	}
	return err
}
