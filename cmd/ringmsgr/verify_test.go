package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

// sentMessage is message n of lane 3 of a sender.
func sentMessage(n uint64, size int) *control.Message {
	front := make([]byte, headSize)
	binary.LittleEndian.PutUint64(front, 3)
	binary.LittleEndian.PutUint64(front[8:], n)
	m := control.NewMessage(2, front, bytes.Clone(newPattern(size).payload(3, n, size)))
	m.TID = n
	return m
}

// Matrix: INV-12
func TestVerifierLooksAtEveryByte(t *testing.T) {
	v, conn := &verifier{}, &control.Conn{}
	next, wrong := uint64(0), uint64(0)
	for _, size := range []int{0, 1, 7, 8, 9, 512, 513, 521, 1100, 1<<16 + 9} { // the last one is larger than the first pattern
		for range 40 {
			v.check(conn, sentMessage(next, size))
			next++
		}
		for at := 0; at < size; at += 1 + at/1200*997 {
			m := sentMessage(next, size)
			m.Data[at] ^= 1
			v.check(conn, m)
			if wrong++; v.corrupt.Load() != wrong {
				t.Fatalf("byte %d of %d may change", at, size)
			}
		}
		if size > 0 {
			m := sentMessage(next, size)
			m.Middle = []byte("more")
			v.check(conn, m)
			wrong++
		}
	}
	if got, want := *v.verdict(), (verdict{Verified: next, Corrupt: wrong}); got != want {
		t.Errorf("%v, want %v", &got, &want)
	}
}

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

func TestVerifierCountsWhatIsNotInOrder(t *testing.T) {
	message := func(n uint64) *control.Message { return sentMessage(n, 1000) }
	for name, c := range map[string]struct {
		numbers []uint64
		want    verdict
	}{
		"all":           {[]uint64{0, 1, 2}, verdict{Verified: 3}},
		"one is lost":   {[]uint64{0, 2, 3}, verdict{Verified: 2, Losses: 1}},
		"the first is":  {[]uint64{1, 2}, verdict{Verified: 1, Losses: 1}},
		"one is double": {[]uint64{0, 1, 1, 2}, verdict{Verified: 3, Duplicates: 1}},
		"two change":    {[]uint64{0, 2, 1, 3}, verdict{Verified: 2, Losses: 1, Duplicates: 1}},
		"all again":     {[]uint64{0, 1, 0, 1}, verdict{Verified: 2, Duplicates: 2}},
	} {
		v, conn := &verifier{}, &control.Conn{}
		for _, n := range c.numbers {
			v.check(conn, message(n))
		}
		if got := *v.verdict(); got != c.want || (got.err() == nil) != (name == "all") {
			t.Errorf("%s: %v, want %v", name, &got, &c.want)
		}
	}
	v, conn := &verifier{}, &control.Conn{}
	v.check(conn, message(0))
	for _, at := range []int{0, 7, 512, 519} {
		m := message(1)
		m.Data[at] ^= 1
		v.check(conn, m)
	}
	other := message(1)
	other.TID = 5
	v.check(conn, other)
	v.check(conn, control.NewMessage(2, []byte("of somebody else"[:9]), nil))
	v.check(conn, message(1))
	if got, want := *v.verdict(), (verdict{Verified: 2, Corrupt: 5}); got != want {
		t.Errorf("%v, want %v", &got, &want)
	}
	v.begin(conn)
	v.check(conn, message(0))
	if got := v.verdict(); got.Verified != 3 || got.Duplicates != 0 {
		t.Errorf("a session that begins anew: %v", got)
	}
}

// Matrix: INV-12
func TestServeVerifies(t *testing.T) {
	s := serve(t, "--verify", "--json", "--cores", "2")
	ringmsgr(t, "send", "--messages", "1000", "--conns", "3", "--size", "1000", s.addr).want(t, cli.OK)
	var v verdict
	if err := json.Unmarshal([]byte(s.stop(t)), &v); err != nil || v != (verdict{Verified: 1000}) {
		t.Errorf("%v, %v", &v, err)
	}
	s = serve(t, "--verify")
	ringmsgr(t, "send", "--messages", "7", s.addr).want(t, cli.OK)
	if rest := s.stop(t); !strings.Contains(rest, "verified: 7 messages in order, 0 duplicates, 0 losses, 0 corrupt\n") {
		t.Errorf("serve says %s", rest)
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
