package handover

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// nothing is the payload of a record that says all by its type.
func nothing(p []byte) []byte { return p }

// The steps of the successor, in their order.

// SendHello opens the conversation.
func (l *Link) SendHello(h Hello) error { return l.send(recordHello, h.appendTo) }

// ReadOffer reads the offer of the predecessor.
func (l *Link) ReadOffer() (Offer, error) {
	p, err := expect(l.in, recordOffer)
	if err != nil {
		return Offer{}, err
	}
	return decodeOffer(p)
}

// ReadListeners reads n listening sockets, which the caller owns from here.
func (l *Link) ReadListeners(n int) ([]int, error) { return l.readFiles(recordListeners, n) }

// ReadSteering reads n descriptors of steering programs, which the caller owns from here.
func (l *Link) ReadSteering(n int) ([]int, error) { return l.readFiles(recordSteering, n) }

// SendReady says that the successor has everything but the sessions.
func (l *Link) SendReady() error { return l.send(recordReady, nothing) }

// ReadSessions reads until the predecessor has sent everything.
func (l *Link) ReadSessions() ([]Session, Done, error) { return readSessions(l.in) }

// Commit makes everything the successor's, once it has returned nil.
func (l *Link) Commit() error { return l.send(recordCommitted, nothing) }

// The steps of the predecessor, in their order.

// ReadHello reads the identity of the successor.
func (l *Link) ReadHello() (Hello, error) {
	p, err := expect(l.in, recordHello)
	if err != nil {
		return Hello{}, err
	}
	return decodeHello(p)
}

// SendOffer sends the offer of the predecessor.
func (l *Link) SendOffer(o Offer) error {
	if o.Listeners > filesMax {
		return Errorf("%d listeners", o.Listeners)
	}
	return l.send(recordOffer, o.appendTo)
}

// SendListeners sends duplicates of listening sockets, address by address. The sockets stay
// the caller's.
func (l *Link) SendListeners(fds []int) error { return l.sendFiles(recordListeners, fds) }

// SendSteering sends duplicates of the descriptors of steering programs. They stay
// the caller's.
func (l *Link) SendSteering(fds []int) error { return l.sendFiles(recordSteering, fds) }

// AwaitReady waits until the successor can take the sessions.
func (l *Link) AwaitReady() error {
	_, err := expect(l.in, recordReady)
	return err
}

// SendSession sends a session and its messages, and returns their number. It may
// stay in a buffer until SendDone.
func (l *Link) SendSession(s *Session) (messages uint64, err error) {
	if messages, err = s.Write(l.out); err != nil {
		err = fmt.Errorf("%w: %w", ErrHandOver, err)
	}
	return messages, err
}

// SendDone ends the sessions.
func (l *Link) SendDone(d Done) error { return l.send(recordDone, d.appendTo) }

// AwaitCommitted waits for the successor's commit. When the wait fails, it keeps the
// successor from a later commit: after the shutdown the successor's write fails, and bytes
// that it wrote before are still read.
func (l *Link) AwaitCommitted() error {
	_, err := expect(l.in, recordCommitted)
	if err == nil {
		return nil
	}
	_ = l.conn.CloseRead() // fails only if the other side has gone, and that reads as the end
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.conn.SetReadDeadline(time.Time{})
		if _, late := expect(l.in, recordCommitted); late == nil {
			return nil
		}
	}
	return err
}
