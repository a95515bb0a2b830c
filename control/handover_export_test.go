package control

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// The steps at which a broken successor stops.
const (
	StopBeforeHello = iota
	StopBehindHello
	StopBehindOffer
	StopAtReady     // it refuses
	StopBehindReady // it takes nothing of the sessions
	StopInSessions
	StopBehindSessions
	StopWithGarbage
	StopSilent // it neither commits nor goes, until told
	StopSteps
)

// BreakSuccession plays a successor of m that goes wrong at a step. StopSilent
// waits for late before it tries to commit, and returns how that went.
func BreakSuccession(ctx context.Context, m *Messenger, conn *net.UnixConn, step int, late <-chan struct{}) error {
	l := newHandoverLink(ctx, conn)
	defer conn.Close()
	defer l.close()
	if step == StopBeforeHello {
		return nil
	}
	h := hello{entity: m.cfg.Name, anyNonce: true}
	if err := l.send(recordHello, h.appendTo(nil)); err != nil || step == StopBehindHello {
		return err
	}
	p, err := expect(l.in, recordOffer)
	if err != nil {
		return err
	}
	o, err := decodeOffer(p)
	if err != nil {
		return err
	}
	fds, err := l.readFiles(recordListeners, int(o.listeners))
	if err != nil {
		return err
	}
	defer closeAll(fds)
	steer, err := l.readFiles(recordSteering, int(o.steering))
	if err != nil {
		return err
	}
	defer closeAll(steer)
	switch step {
	case StopBehindOffer:
		return nil
	case StopAtReady:
		return l.send(recordRefused, []byte("no room"))
	}
	if err := l.send(recordReady, nil); err != nil || step == StopBehindReady {
		return err
	}
	if step == StopInSessions {
		_, _, err := readRecord(l.in)
		return err
	}
	if _, _, err := readSessions(l.in); err != nil || step == StopBehindSessions {
		return err
	}
	if step == StopWithGarbage {
		return l.send(recordHello, make([]byte, 100))
	}
	<-late
	return l.send(recordCommitted, nil)
}

// BreakPredecession plays a predecessor that offers the listeners of m and dies
// at a step: 0 before the offer, 1 behind it, 2 behind the successor's ready, 3
// within a session, 4 before the last record.
func BreakPredecession(m *Messenger, conn *net.UnixConn, step int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l := newHandoverLink(ctx, conn)
	defer conn.Close()
	defer l.close()
	if _, err := expect(l.in, recordHello); err != nil || step == 0 {
		return err
	}
	o := offer{entity: m.cfg.Name, nonce: m.nonce, bound: true, addrs: m.Addrs(), listeners: uint32(len(m.listeners))}
	if err := l.send(recordOffer, o.appendTo(nil)); err != nil || step == 1 {
		return err
	}
	var fds []int
	defer func() { closeAll(fds) }()
	for _, li := range m.listeners {
		fd, err := unix.FcntlInt(uintptr(li.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	if err := l.sendFiles(recordListeners, fds); err != nil {
		return err
	}
	if _, err := expect(l.in, recordReady); err != nil || step == 2 {
		return err
	}
	s := session{target: o.addrs[0]}
	s.io.Queued = []*Message{NewMessage(1, nil, make([]byte, 100))}
	if step == 3 {
		return l.send(recordSession, s.appendTo(nil))
	}
	if _, err := s.write(l.out); err != nil {
		return err
	}
	return l.out.Flush()
}
