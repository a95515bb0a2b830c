package control

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
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

// GlobalSeq is the number of the last attempt to connect.
func GlobalSeq(m *Messenger) uint64 { return m.s.Attempts().Msgr2 }

// LocksTaken is how often the lock of sessions was taken before, in builds that check it.
func (m *Messenger) LocksTaken() uint64 { return m.s.LocksTaken() }

// RawPlane is the messenger's group of cores, for tests that break them.
func (m *Messenger) RawPlane() *loop.Plane { return m.plane }

// SetLoader has the messenger load its steering programs by f. It comes before
// Bind.
func (m *Messenger) SetLoader(f func(bpf.Config) (*bpf.Steering, error)) { m.s.Load(f) }

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

// BreakPredecession plays a predecessor that offers the listeners of m and dies
// at a step: 0 before the offer, 1 behind it, 2 behind the successor's ready, 3
// within a session, 4 before the last record.
func BreakPredecession(m *Messenger, conn *net.UnixConn, step int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := handover.NewLink(ctx, conn)
	defer conn.Close()
	defer l.Close()
	if _, err := l.ReadHello(); err != nil || step == 0 {
		return err
	}
	o := handover.Offer{Entity: m.cfg.Name, Nonce: m.s.Offer().Nonce, Bound: true, Addrs: m.Addrs(), Listeners: uint32(len(m.s.Listeners()))}
	if err := l.SendOffer(o); err != nil || step == 1 {
		return err
	}
	var fds []int
	defer func() { handover.CloseFiles(fds) }()
	for _, li := range m.s.Listeners() {
		fd, err := unix.FcntlInt(uintptr(li.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	if err := l.SendListeners(fds); err != nil {
		return err
	}
	if err := l.AwaitReady(); err != nil || step == 2 {
		return err
	}
	s := handover.Session{Target: o.Addrs[0]}
	s.IO.Queued = []*Message{NewMessage(1, nil, make([]byte, 100))}
	var b bytes.Buffer
	if _, err := s.Write(&b); err != nil {
		return err
	}
	if step == 3 {
		b.Truncate(b.Len() - 50) // within the payload
	}
	_, err := b.WriteTo(conn)
	return err
}
