package main

import (
	"errors"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

// A reply is wrong if a byte of its header is, and in the sample if any byte is.
// Matrix: BE-01
func TestAWrongReplyIsFound(t *testing.T) {
	payload := load.Payload(1000)
	flat := func(m message) []byte { return m.data.Materialize() }
	for name, c := range map[string]struct {
		skip  int // replies before it
		spoil func(p []byte) []byte
		wrong bool
	}{
		"the reply":              {0, func(p []byte) []byte { return p }, false},
		"a byte too few":         {0, func(p []byte) []byte { return p[1:] }, true},
		"a byte too many":        {0, func(p []byte) []byte { return append(p, 0) }, true},
		"another transaction id": {0, func(p []byte) []byte { p[0] ^= 2; return p }, true},
		"another size":           {0, func(p []byte) []byte { p[8] ^= 1; return p }, true},
		"another crc":            {0, func(p []byte) []byte { p[headerSum] ^= 1; return p }, true},
		"a payload of no sample": {0, func(p []byte) []byte { p[500] ^= 1; return p }, false},
		"a payload of a sample":  {load.SampleMask, func(p []byte) []byte { p[500] ^= 1; return p }, true},
		"its last byte":          {load.SampleMask, func(p []byte) []byte { p[len(p)-1] ^= 1; return p }, true},
	} {
		n := newNumbers(3)
		var request message
		for range c.skip + 1 {
			request = n.request(payload)
		}
		n.want += uint64(c.skip)
		p := c.spoil(flat(request))
		reply := message{mem.BufferSlice{mem.SliceBuffer(p[:7]), mem.SliceBuffer(p[7:300]), mem.SliceBuffer(p[300:])}}
		if err := n.check(&reply, payload); (err != nil) != c.wrong || err != nil && !errors.Is(err, load.ErrReply) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Matrix: BE-01
func TestTheReplyToAnotherRequestIsWrong(t *testing.T) {
	n, payload := newNumbers(0), load.Payload(10)
	_, second := n.request(payload), n.request(payload)
	if err := n.check(&second, payload); !errors.Is(err, load.ErrReply) {
		t.Errorf("error %v", err)
	}
}
