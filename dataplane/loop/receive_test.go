package loop

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A framer may take a connection at once, when it is accepted.
// Matrix: IO-23
func TestAConnectionThatAFramerTakesAtOnceReceivesOnce(t *testing.T) {
	overPlanes(t, 1, func(t *testing.T, p *Plane) {
		l, err := p.Core(0).Listen(loopback, uring.ListenOptions{}, func(link *Link) { must(t, link.Carry(&lengths{})) })
		must(t, err)
		c, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		defer c.Close()
		question := lengthsOf(10)
		_, err = c.Write(question)
		must(t, err)
		answer := make([]byte, len(question))
		if _, err := io.ReadFull(c, answer); err != nil || !bytes.Equal(answer, question) {
			t.Errorf("answered %x, %v", answer, err)
		}
		if n := stats(t, p.Core(0)).Receiving; n > 1 {
			t.Errorf("%d receives of one connection", n)
		}
	})
}

func TestACoreSaysHowItsConnectionsReceiveAndWhy(t *testing.T) {
	for _, one := range []struct {
		set   ReceiveMode
		multi bool
		want  ReceiveMode
		why   Why
	}{
		{"", true, ReceiveAuto, WhyEach},
		{ReceiveAuto, true, ReceiveAuto, WhyEach},
		{ReceiveAuto, false, ReceiveReady, WhyEngine},
		{ReceiveBuffers, true, ReceiveBuffers, WhyAsked},
		{ReceiveBuffers, false, ReceiveReady, WhyEngine},
		{ReceiveReady, true, ReceiveReady, WhyAsked},
	} {
		b := newBed(t, func(cfg *Config, d *fakedriver.Driver) {
			cfg.Receive, d.Multishot = one.set, one.multi
		})
		if st := b.c.Snapshot(); st.Receive != string(one.want) || st.ReceiveWhy != string(one.why) {
			t.Errorf("%+v: %q, %q", one, st.Receive, st.ReceiveWhy)
		}
		l, _ := b.link()
		want, why := ReceiveReady, one.why
		if one.want == ReceiveBuffers {
			want = ReceiveBuffers
		} else if one.want == ReceiveAuto {
			why = WhyBegun
		}
		if got, because := l.sock.Receives(); got != want || because != why {
			t.Errorf("%+v: a socket begins by %q, %q", one, got, because)
		}
	}
}

// What a socket has seen is taken along to a core that receives in the same mode. On
// one of another mode, because of its engine or its configuration, it begins anew.
func TestASocketBeginsAnewOnACoreThatReceivesOtherwise(t *testing.T) {
	core := func(set ReceiveMode, multi bool) *bed {
		return newBed(t, func(cfg *Config, d *fakedriver.Driver) { cfg.Receive, d.Multishot = set, multi })
	}
	for _, one := range []struct {
		from, to *bed
		want     ReceiveMode
		why      Why
	}{
		{core(ReceiveAuto, true), core(ReceiveAuto, true), ReceiveReady, WhyStopped},
		{core(ReceiveAuto, true), core(ReceiveAuto, false), ReceiveReady, WhyEngine},
		{core(ReceiveAuto, true), core(ReceiveReady, true), ReceiveReady, WhyAsked},
		{core(ReceiveAuto, true), core(ReceiveBuffers, true), ReceiveBuffers, WhyAsked},
		{core(ReceiveAuto, false), core(ReceiveBuffers, true), ReceiveBuffers, WhyAsked},
		{core(ReceiveBuffers, true), core(ReceiveAuto, true), ReceiveReady, WhyBegun},
		{core(ReceiveReady, true), core(ReceiveAuto, true), ReceiveReady, WhyBegun},
	} {
		l, _ := one.from.link()
		if one.from.c.receive == ReceiveAuto {
			l.sock.way.why = WhyStopped // it has been in the buffers
		}
		var left *Detached
		l.sock.Detach(func(_ *Core, d *Detached) { left = d })
		one.from.settle()
		f := one.to.d.Open()
		left.fd = f.Sock.FD() // one of the other driver
		s, err := one.to.c.Attach(left, new(newOwner))
		must(t, err)
		s.Continue()
		one.to.settle()
		if got, why := s.Receives(); got != one.want || why != one.why || f.Receiving != (got == ReceiveBuffers) {
			t.Errorf("from %s to %s: %q, %q, a receive is armed: %v", one.from.c.receive, one.to.c.receive, got, why, f.Receiving)
		}
	}
}
