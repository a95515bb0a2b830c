package dataplane

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// holdProbe holds the frames at some places among those that it is asked for,
// counted from 0, and notes all of them.
type holdProbe struct {
	hold  []int
	asked []frame.Tag
}

// socket is one that the probe is told of.
func (k *holdProbe) socket() *probe.Socket { return probed(k.frame) }

func (k *holdProbe) frame(tag frame.Tag, write bool) error {
	if !write {
		return nil
	}
	k.asked = append(k.asked, tag)
	if slices.Contains(k.hold, len(k.asked)-1) {
		return probe.ErrHold
	}
	return nil
}

const (
	tagPing = frame.TagKeepalive2
	tagPong = frame.TagKeepalive2Ack
	tagAck  = frame.TagAck
	tagMsg  = frame.TagMessage
)

// While a frame is held, others come due that go before it. The probe is asked
// once for each of them, and once for the one that was held.
func TestAHeldFrameIsAskedForOnceWhateverComesBetween(t *testing.T) {
	ping := Timestamp{7, 8}.payload()
	message := func(tid uint64, priority uint16) func(*conn) {
		return func(c *conn) { must(c.t, c.h.Send(&Message{TID: tid, Priority: priority})) }
	}
	keepalive := func(c *conn) { c.h.Keepalive() }
	pinged := func(c *conn) { c.sock.Arrive(c.peer.frame(tagPing, ping[:])) }
	received := func(c *conn) { c.sock.Arrive(c.peer.message(1, 0, &Message{})) }
	for _, one := range []struct {
		name    string
		hold    []int
		first   func(*conn)
		between []func(*conn)
		resumes int
		asked   []frame.Tag // by the probe, in order
		sent    []frame.Tag
		tids    []uint64
	}{
		{"a keepalive", []int{0}, message(1, 0), []func(*conn){keepalive}, 1,
			[]frame.Tag{tagMsg, tagPing}, []frame.Tag{tagPing, tagMsg}, []uint64{1}},
		{"an answer to a keepalive", []int{0}, message(1, 0), []func(*conn){pinged}, 1,
			[]frame.Tag{tagMsg, tagPong}, []frame.Tag{tagPong, tagMsg}, []uint64{1}},
		{"a keepalive that is held, too", []int{0, 1}, message(1, 0), []func(*conn){keepalive}, 2,
			[]frame.Tag{tagMsg, tagPing}, []frame.Tag{tagPing, tagMsg}, []uint64{1}},
		{"an urgent message", []int{0}, message(1, 0), []func(*conn){message(2, PriorityHighest)}, 1,
			[]frame.Tag{tagMsg, tagMsg}, []frame.Tag{tagMsg, tagMsg}, []uint64{2, 1}},
		{"an urgent message that is held, too", []int{0, 1}, message(1, 0), []func(*conn){message(2, PriorityHighest), keepalive}, 3,
			[]frame.Tag{tagMsg, tagPing, tagMsg}, []frame.Tag{tagPing, tagMsg, tagMsg}, []uint64{2, 1}},
		{"a keepalive before a held answer", []int{0}, pinged, []func(*conn){keepalive, message(1, 0)}, 1,
			[]frame.Tag{tagPong, tagPing, tagMsg}, []frame.Tag{tagPing, tagPong, tagMsg}, []uint64{1}},
		{"a message that carries a held ack", []int{0}, received, []func(*conn){message(1, 0)}, 1,
			[]frame.Tag{tagAck, tagMsg}, []frame.Tag{tagMsg}, []uint64{1}},
	} {
		t.Run(one.name, func(t *testing.T) {
			held := &holdProbe{hold: one.hold}
			c := newBed(t, nil).conn(OpenOptions{Probe: held.socket()})
			one.first(c)
			c.settle()
			for _, f := range one.between {
				f(c)
				c.settle()
			}
			if len(c.sock.Sent) != 0 || len(held.asked) != 1 {
				t.Fatalf("while held: %d bytes sent, asked for %v", len(c.sock.Sent), held.asked)
			}
			for range one.resumes {
				c.h.Resume()
				c.settle()
			}
			frames := c.take()
			if !slices.Equal(held.asked, one.asked) {
				t.Errorf("asked for %v, want %v", held.asked, one.asked)
			}
			if !slices.Equal(tags(frames), one.sent) || !slices.Equal(tids(frames), one.tids) {
				t.Errorf("sent %v, messages %v; want %v, %v", tags(frames), tids(frames), one.sent, one.tids)
			}
			if c.own.fault() != nil {
				t.Error(c.own.fault())
			}
		})
	}
}

// An ack that was held, and then carried by a message, says nothing about the
// next one.
func TestTheNextAckIsAskedForAfterAHeldOneWasCarried(t *testing.T) {
	held := &holdProbe{hold: []int{0}}
	c := newBed(t, nil).conn(OpenOptions{Probe: held.socket()})
	c.arrive(c.peer.message(1, 0, &Message{}))
	must(t, c.h.Send(&Message{}))
	c.h.Resume()
	c.settle()
	c.arrive(c.peer.message(2, 0, &Message{}))
	if want := []frame.Tag{tagAck, tagMsg, tagAck}; !slices.Equal(held.asked, want) {
		t.Errorf("asked for %v, want %v", held.asked, want)
	}
}

// Break points belong to a socket: on the next one the probe is asked again.
func TestAHeldFrameIsAskedForAgainOnTheNextSocket(t *testing.T) {
	held := &holdProbe{hold: []int{0}}
	c := newBed(t, nil).conn(OpenOptions{Probe: held.socket()})
	c.send(&Message{})
	c.h.Delay(false, nil)
	c.open(OpenOptions{Probe: held.socket()})
	if want := []frame.Tag{tagMsg, tagMsg}; !slices.Equal(held.asked, want) || len(c.take()) != 1 {
		t.Errorf("asked for %v, want %v", held.asked, want)
	}
}

// A held frame waits for Resume, with all behind it in its direction. The other direction goes on.
// The frames of msgr1 have the names of msgr2.
// Matrix: V1-10
func TestAFrameIsHeldAtABreakPointUntilResume(t *testing.T) {
	for _, m := range allModes {
		for i := range 16 {
			tag, write, size := []frame.Tag{tagMsg, tagAck, tagPing, tagPong}[i%4], i/4%2 == 1, i/8*200<<10
			where, asked := fmt.Sprintf("%s: %v, write=%v, %d bytes", m.name, tag, write, size), 0
			c := newBed(t, nil).conn(OpenOptions{Probe: probed(func(of frame.Tag, w bool) error {
				if of != tag || w != write {
					return nil
				}
				if asked++; asked > 1 {
					return nil
				}
				return probe.ErrHold
			})}, m)
			must(t, c.h.Send(&Message{TID: 1}))
			c.h.Keepalive()
			list := messagesOf([][3]int{{5, 0, size}, {6, 0, size}})
			c.arrive(slices.Concat(c.peer.message(1, 0, list[0]), c.peer.ack(1), c.peer.stamped(tagPing, Timestamp{1,
				2}), c.peer.stamped(tagPong, Timestamp{1, 2})))
			c.arrive(c.peer.message(2, 0, list[1]))
			in := func() bool {
				st := c.h.statistics(c.c)
				return st.MessagesIn == 2 && st.AcksIn == 1 && st.UnaskedAcks == 1
			}
			out := func() bool {
				st := c.h.statistics(c.c)
				return st.MessagesOut == 1 && st.AckLag == 0 && st.Queued == 0 && !c.h.ping && !c.h.pong
			}
			if asked != 1 || c.own.fault() != nil || in() != write || !write && c.h.stats.messagesOut != 1 || write &&
				out() {
				t.Fatalf("%s: asked %d times, fault %v, all received: %v, all sent: %v", where, asked, c.own.fault(),
					in(), out())
			}
			c.h.Resume()
			c.settle()
			if !in() || !out() || c.own.fault() != nil {
				t.Errorf("%s, after Resume: %+v, fault %v", where, c.h.statistics(c.c), c.own.fault())
			}
			checkReceived(t, c.own.list(), list)
		}
	}
}
