package control

import (
	"errors"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// IsDialled says whether the address that leads to a connection is known, not only
// claimed by its peer.
func IsDialled(c *Conn) bool { return c.s.Peer().Dialled }

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
func Unhold(c *Conn) { c.s.Handler().Unhold() }
