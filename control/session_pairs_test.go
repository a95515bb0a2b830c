package control_test

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Two faults in the life of one session, at any two places of it.

// place is a point of one side.
type place struct {
	side msgrtest.Role
	at   msgrtest.Point
}

func (p place) resumes() bool { return isIn(p.at, msgrtest.ReconnectPoints(p.side)) }
func (p place) inData() bool  { return isIn(p.at, msgrtest.DataPoints()) }

// opens says that the point is only passed where no session is known to both.
func (p place) opens() bool {
	return p.at.Tag == frame.TagClientIdent || p.at.Tag == frame.TagServerIdent
}

// decides says that an acceptor of msgr1 may have a session behind the point of which the
// connector has not heard, so that it answers READY to the next attempt.
func (p place) decides() bool {
	return p.at.Step == probe.ReplyWrite || p.at.Step == probe.ReplyRead || p.at.Step == probe.SeqWrite
}

// exchanges says that the point is only passed where the acceptor answers SEQ.
func (p place) exchanges() bool { return p.at.Step == probe.SeqWrite || p.at.Step == probe.SeqRead }

// faults are two places, one behind the other.
type faults struct {
	pairing
	first, second place
	v             variant
}

func (f faults) name() string {
	return title(f.connector, f.first.side, msgrtest.PointName(f.first.at), f.second.side, msgrtest.PointName(f.second.at), f.v)
}

func (f faults) run(t *testing.T) {
	w := &duet{t: t, ctx: deadline(t), v: f.v}
	w.acceptor = nodeOf(t, f.v, "osd.1", f.acceptor, 3, withChain(keeper(), echoer()))
	w.connector = nodeOf(t, f.v, connectorName(f.connector), f.connector, 2)
	// The acceptor's own attempts to resume stay out of the way until both
	// places are passed.
	theirs := w.acceptor.Probe.Arm(msgrtest.SocketConnecting(), 1, msgrtest.Block())
	var last *msgrtest.Break
	fault := func(p place) { last = w.side(p.side).Probe.ArmBehind(last, p.at, 1, msgrtest.Fault()) }
	lost := place{msgrtest.Connector, msgrtest.Write(frame.TagMessage)} // there is a session to resume
	if f.first.resumes() {
		fault(lost)
	}
	fault(f.first)
	if f.second.resumes() && !f.first.resumes() && !f.first.inData() || f.second.exchanges() && f.first.decides() {
		fault(lost)
	}
	fault(f.second)
	w.dial()
	w.talkUntil(last)
	theirs.Forget()
	w.finish()
}
