package main

import (
	"bytes"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// A block of another message, or from another place of the same, is found.
func TestBytesOfAnotherMessageOrPlaceShow(t *testing.T) {
	const size, block = 4096, 512
	p := newPattern(size)
	right := p.payload(0, 100, size)
	for name, other := range map[string][]byte{
		"the next message": p.payload(0, 101, size), "an earlier message": p.payload(0, 84, size), "another connection": p.payload(1, 100, size),
		"another place": append(bytes.Clone(right[block:]), right[:block]...),
	} {
		for at := 0; at < size; at += block {
			if bytes.Equal(right[at:at+block], other[at:at+block]) {
				t.Errorf("%s does not show at %d", name, at)
			}
		}
	}
}

func TestSendForADuration(t *testing.T) {
	s := serve(t)
	x := decode[sent](t, ringmsgr(t, "send", "--json", "--conns", "2", "--duration", "100ms", s.addr).want(t, cli.OK))
	if x.Verified == 0 || x.Messages != x.Verified || x.Losses != 0 {
		t.Errorf("send says %+v", x)
	}
	x = decode[sent](t, ringmsgr(t, "send", "--json", "--messages", "5", "--duration", "1h", s.addr).want(t, cli.OK))
	if x.Verified != 5 || x.Messages != 5 {
		t.Errorf("send says %+v", x)
	}
}
