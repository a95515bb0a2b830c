package loop

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// This file is the core's side of a Link.

// answer ends the call under way. On the core.
func (l *Link) answer(r reply) {
	select {
	case l.result <- r:
	default: // the caller has gone: its deadline came first
	}
}

// Cause is why a link has no socket any more: ErrLinkClosed, with what its socket
// ended with if nobody has been told. On the link's core.
func (l *Link) Cause() error {
	if err := l.takeCause(); !errors.Is(err, ErrLinkClosed) {
		return fmt.Errorf("%w: %w", ErrLinkClosed, err)
	}
	return ErrLinkClosed
}

// takeCause is what the socket has ended with, ErrLinkClosed if that is not known.
// The answer to the last call may have been in the way of the cause when the socket
// ended, so that the next call finds it here.
func (l *Link) takeCause() error {
	select {
	case <-l.result: // the same, or for a call that has been given up
	default:
	}
	err := cmp.Or(l.cause, ErrLinkClosed)
	l.cause = nil
	return err
}

// serve begins a call.
func (l *Link) serve(*Core) {
	switch {
	case l.call.ctx.Err() != nil: // the caller has left
	case l.sock == nil || l.sock.link != l:
		l.answer(reply{err: l.takeCause()}) // unless it is there already
	default:
		l.sock.serveLink(&l.call)
	}
}

func (s *Socket) serveLink(c *linkCall) {
	s.core.stats.LinkCalls++
	s.prepend(c.unread)
	s.queueLink(c.send)
	s.call = c
	s.writeLink()
	s.feedLink()
}

// prepend puts p, whose memory it takes, before what is held back.
func (s *Socket) prepend(p []byte) {
	if len(p) > 0 || s.backlog == nil {
		s.backlog = append(p, s.backlog...)
	}
}

// queueLink puts p, whose memory it takes, behind what is to be sent.
func (s *Socket) queueLink(p []byte) {
	if len(s.unsent) == 0 {
		s.unsent = p
	} else {
		s.unsent = append(s.unsent, p...)
	}
}

// feedLink answers the call under way, if what it waits for is there.
func (s *Socket) feedLink() {
	c := s.call
	if c == nil {
		return
	}
	var r reply
	if c.wrote {
		if s.writing {
			return
		}
	} else {
		have := s.backlog
		done := len(have) >= c.min && (c.enough == nil || c.enough(have))
		if !done && !s.eof && len(have) < s.most {
			return
		}
		r.unread, r.eof = have, s.eof
		s.backlog = nil
	}
	s.call = nil
	s.link.answer(r)
	s.resumeReading()
}

// writeLink sends what the link has queued, one write at a time.
func (s *Socket) writeLink() {
	if s.writing || len(s.unsent) == 0 {
		return
	}
	v, err := s.core.vec()
	if err != nil {
		s.Fault(err)
		return
	}
	v.Append(s.unsent)
	s.unsent = nil
	s.tx.core, s.tx.vec = s.core, v
	s.writing = true
	s.send(0)
}

// leaveLink takes the socket from its link, with what the link has taken from
// it and what it has queued.
func (s *Socket) leaveLink(l *Link) {
	l.sock, s.link = nil, nil
	s.prepend(l.unread)
	s.queueLink(l.unsent)
	l.unread, l.unsent, l.spent = nil, nil, nil
	s.writeLink()
}

// connected is the completion of Dial.
func (s *Socket) connected(res int32) {
	l := s.link
	if l == nil {
		return
	}
	if res < 0 {
		s.Fault(unix.Errno(-res))
		return
	}
	l.local = s.core.drv.LocalAddr(s.sock)
	s.arm()
	l.answer(reply{})
}
