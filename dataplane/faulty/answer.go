package faulty

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// This file is what becomes of completions. A multishot operation that shall fail is
// cancelled at the driver below, and the completion that says so gets the errno
// instead: so everything that came before is delivered, and nothing behind.

// ends are the requests whose answers are completions.
var ends = map[uring.Kind]Request{
	uring.KindAccept: AcceptEnd, uring.KindReady: ReadyEnd, uring.KindReceive: ReceiveEnd,
}

// Wait implements uring.Driver.
func (d *driver) Wait(timeout time.Duration) ([]uring.Completion, error) {
	if d.broken == nil {
		d.broken = d.call(Wait)
	}
	if d.broken != nil {
		return nil, d.broken
	}
	switch {
	case d.hold == 0 && len(d.queue) > 0:
		timeout = 0
	case d.hold > 0 && (timeout < 0 || timeout > lateNap):
		timeout = lateNap
	}
	got, err := d.Driver.Wait(timeout)
	for i := range got {
		d.take(got[i])
	}
	if err != nil {
		return nil, err
	}
	if d.hold > 0 {
		d.hold--
		return nil, nil
	}
	n := len(d.queue)
	if d.simulated {
		n = min(n, 1) // the test decides what happens between any two
	}
	d.out = append(d.out[:0], d.queue[:n]...)
	d.queue = slices.Delete(d.queue, 0, n)
	return d.out, nil
}

// Pending says whether Wait would return something, above a simulated driver.
func (d *driver) Pending() bool {
	below, ok := d.Driver.(interface{ Pending() bool })
	return len(d.queue) > 0 || d.hold > 0 || ok && below.Pending()
}

// undelivered are the completions that nobody has got.
func (d *driver) undelivered() []uring.Completion {
	list := slices.Clone(d.queue)
	for _, fl := range d.flying {
		if fl.last != nil {
			list = append(list, *fl.last)
		}
	}
	return list
}

// take deals with one completion of the driver below.
func (d *driver) take(c uring.Completion) {
	k := key{c.Kind, c.User}
	fl := d.flying[k]
	switch {
	case fl == nil:
		d.queue = append(d.queue, c)
	case c.Flags&uring.More == 0:
		delete(d.flying, k)
		switch c.Kind {
		case uring.KindRead, uring.KindWrite, uring.KindSync, uring.KindAllocate:
			d.fileAnswer(fl, c)
		default:
			d.answer(fl, c)
		}
	default:
		d.more(fl, c)
	}
}

// more is a completion of an operation that stays armed.
func (d *driver) more(fl *flight, c uring.Completion) {
	if fl.last != nil { // the one behind it is the last
		d.queue = append(d.queue, *fl.last)
		*fl.last = c
		return
	}
	if fl.fault != (Fault{}) { // on its way to its end
		d.queue = append(d.queue, c)
		return
	}
	f := d.ask(ends[c.Kind])
	switch {
	case f.Form == Late:
		d.hold = lateTurns
		d.queue = append(d.queue, c)
	case f.Form == Empty:
		d.queue = append(d.queue, c, uring.Completion{User: c.User, Op: c.Op, Kind: c.Kind, Res: unix.POLLIN, Flags: uring.More})
	case f.Form == Early:
		fl.fault, fl.last = f, &c
		d.Driver.Cancel(fl.op)
	case f.Errno != 0:
		d.queue = append(d.queue, c)
		fl.fault = f
		d.Driver.Cancel(fl.op)
	default:
		d.queue = append(d.queue, c)
	}
}

// answer is the final completion of an operation.
func (d *driver) answer(fl *flight, c uring.Completion) {
	f := fl.fault
	if f.Errno != 0 && (c.Kind == uring.KindSend || c.Kind == uring.KindConnect || c.Res == -int32(unix.ECANCELED)) {
		c.Res = -int32(f.Errno)
	}
	switch {
	case f.Form == Early && c.Res == -int32(unix.ECANCELED):
		c = *fl.last
		c.Flags &^= uring.More
	case f.Form == Early: // it has ended by itself
		d.queue = append(d.queue, *fl.last)
	case f.Form == Late:
		d.hold = lateTurns
	}
	fl.free()
	d.queue = append(d.queue, c)
}
