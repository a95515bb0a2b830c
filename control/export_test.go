package control

import (
	"context"
	"errors"
	"net"

	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// IsDialled says whether the address that leads to a connection is known, not only
// claimed by its peer.
func IsDialled(c *Conn) bool { return c.s.Peer().Dialled }

// MachineClock is the Clock of the machine.
type MachineClock = machineClock

// StageOf is the stage at which err happened, empty if it is not known.
func StageOf(err error) Stage {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Stage
	}
	return ""
}

// LocksTaken is how often the lock of sessions was taken before, in builds that check it.
func (m *Messenger) LocksTaken() uint64 { return m.s.LocksTaken() }

// RawPlane is the messenger's group of cores, for tests that break them.
func (m *Messenger) RawPlane() *loop.Plane { return m.plane }

// Unhold is the end of an injected delay.
func Unhold(c *Conn) { c.unhold() }

// The steps at which a broken successor stops.
const (
	StopAtReady     = iota // it refuses
	StopBehindReady        // it takes nothing of the sessions
	StopBehindSessions
	StopSilent // it neither commits nor goes, until told
	StopSteps
)

// BreakSuccession plays a successor of m that goes wrong at a step. StopSilent
// waits for late before it tries to commit, and returns how that went.
func BreakSuccession(ctx context.Context, m *Messenger, conn *net.UnixConn, step int, late <-chan struct{}) error {
	l := handover.NewLink(ctx, conn)
	defer conn.Close()
	defer l.Close()
	if err := l.SendHello(handover.Hello{Entity: m.cfg.Name, AnyNonce: true}); err != nil {
		return err
	}
	o, err := l.ReadOffer()
	if err != nil {
		return err
	}
	fds, err := l.ReadListeners(int(o.Listeners))
	if err != nil {
		return err
	}
	defer handover.CloseFiles(fds)
	steer, err := l.ReadSteering(int(o.Steering))
	if err != nil {
		return err
	}
	defer handover.CloseFiles(steer)
	if step == StopAtReady {
		l.Refuse(errors.New("no room"))
		return nil
	}
	if err := l.SendReady(); err != nil || step == StopBehindReady {
		return err
	}
	if _, _, err := l.ReadSessions(); err != nil || step == StopBehindSessions {
		return err
	}
	<-late
	return l.Commit()
}
