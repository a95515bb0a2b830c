package simnet_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

// What a receive brings, whatever ends it on the way, is the stream, and its end.
// Matrix: IO-02
func TestAReceiveBringsTheStreamInOrderAndItsEnd(t *testing.T) {
	ended := 0
	for seed := range uint64(20) {
		opt := weather
		opt.ReceiveBuffers = 2000
		w := newWorld(t, seed, opt)
		a, b := w.connect()
		if info := w.drv[1].Info(); !info.Receive {
			t.Fatalf("%+v", info)
		}
		watch, err := w.drv[1].Ready(b, userReady)
		must(t, err)
		w.drv[1].Cancel(watch)
		op, err := w.drv[1].Receive(b, userReceive)
		must(t, err)
		sent := pattern(40000)
		w.write(0, a, sent, userSend)
		var got []byte
		over := false
		for steps := 0; !over; steps++ {
			if steps > 10000 {
				t.Fatalf("seed %d: stuck at byte %d", seed, len(got))
			}
			w.done[1] = nil
			w.run(time.Second)
			for _, c := range w.done[1] {
				if c.Kind != uring.KindReceive {
					continue
				}
				if c.Op != op || over {
					t.Fatalf("seed %d: a completion behind the last: %+v", seed, c)
				}
				got = append(got, c.Data...)
				w.drv[1].Release(c.Buf)
				if c.Flags&uring.More != 0 {
					continue
				}
				if c.Res == 0 {
					over = true
					break
				}
				if ended++; c.Res < 0 && c.Errno() != unix.ENOBUFS {
					t.Fatalf("seed %d: %v", seed, c.Errno())
				}
				op, err = w.drv[1].Receive(b, userReceive)
				must(t, err)
			}
			if len(got) == len(sent) {
				w.drv[0].Close(a)
			}
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d bytes, which differ", seed, len(got))
		}
	}
	if ended == 0 {
		t.Error("no receive ended early")
	}
}

func TestACancelledReceiveLeavesWhatComesToOthers(t *testing.T) {
	w := newWorld(t, 3, simnet.Options{Whole: true, ReceiveBuffers: 1 << 20})
	a, b := w.connect()
	op, err := w.drv[1].Receive(b, userReceive)
	must(t, err)
	w.write(0, a, []byte("one"), userSend)
	w.run(time.Second)
	if _, err := w.drv[1].Detach(b); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a socket that receives is given away: %v", err)
	}
	w.drv[1].Cancel(op)
	w.write(0, a, []byte("two"), userSend)
	w.run(time.Second)
	var got []byte
	for _, c := range w.done[1] {
		if c.Kind == uring.KindReceive {
			got = append(got, c.Data...)
		}
	}
	if c, _ := w.find(1, uring.KindReceive, userReceive); string(got) != "one" || c.Errno() != unix.ECANCELED || c.Flags&uring.More != 0 {
		t.Errorf("received %q, then %+v", got, c)
	}
	if got, errno, _ := w.read(1, b); string(got) != "two" || errno != unix.EAGAIN {
		t.Errorf("%q behind it, %v", got, errno)
	}
}
