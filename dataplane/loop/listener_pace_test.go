package loop

import (
	"testing"
	"time"
)

// newRefusing makes a listener that refuses everybody.
func newRefusing(t *testing.T) *door {
	o := newDoor(t)
	o.refuse = true
	return o
}

// Matrix: AIM-05
func TestAListenerThatRefusesManyPausesInBetween(t *testing.T) {
	o := newRefusing(t)
	const seconds = 2
	for range seconds * 10_000 {
		for range 5 { // 50 000 a second
			if o.d.armed {
				o.d.connects()
				o.settle()
			}
		}
		o.after(100 * time.Microsecond)
	}
	per := time.Second / perRefusal
	if n := time.Duration(len(o.links)); n > seconds*per+per/10 || n < seconds*per*8/10 {
		t.Errorf("%d refused in %d s, want about %d", n, seconds, seconds*per)
	}
	if st := o.c.stats; st.Refused != uint64(len(o.links)) || st.AcceptPauses == 0 || st.Stray != 0 || st.Sockets != 0 {
		t.Errorf("%d refused, %d pauses, %d stray, %d sockets", st.Refused, st.AcceptPauses, st.Stray, st.Sockets)
	}
}

// What the ring has accepted at once is not lost, and the pause is as long as that
// was much.
func TestManyAtOnceAreAllRefusedAndFollowedByALongPause(t *testing.T) {
	o := newRefusing(t)
	const n = 500
	f := o.d.connects()
	for range n - 1 {
		o.d.connects()
	}
	o.settle()
	if len(o.links) != n || o.d.armed || f.Armed || f.CloseCalls != 1 {
		t.Fatalf("%d of %d refused, armed %v, watched %v, closed %d times", len(o.links), n, o.d.armed, f.Armed, f.CloseCalls)
	}
	o.after(n*perRefusal - time.Millisecond)
	if o.d.armed {
		t.Error("it accepts too early")
	}
	if o.after(2 * time.Millisecond); !o.d.armed {
		t.Error("it does not accept any more")
	}
}

func TestAListenerThatLetsEverybodyInDoesNotPause(t *testing.T) {
	o := newDoor(t)
	for range 2000 {
		f := o.d.connects()
		o.settle()
		if !f.Armed || !o.d.armed {
			t.Fatalf("the socket is watched: %v, the listener accepts: %v", f.Armed, o.d.armed)
		}
	}
	if st := o.c.stats; st.Refused != 0 || st.AcceptPauses != 0 {
		t.Errorf("%d refused, %d pauses", st.Refused, st.AcceptPauses)
	}
}

func TestAListenerInAPauseClosesAndResumes(t *testing.T) {
	o := newRefusing(t)
	for range 100 {
		o.d.connects()
	}
	o.settle()
	o.during(o.l.Pause)
	if o.after(time.Second); o.d.armed {
		t.Error("it accepts, though it is paused")
	}
	if o.during(o.l.Resume); !o.d.armed {
		t.Error("it does not accept")
	}
	for range 100 {
		o.d.connects()
	}
	o.settle()
	o.during(o.l.Close)
	if o.after(time.Second); o.d.armed || o.l.open {
		t.Error("it is open")
	}
}
