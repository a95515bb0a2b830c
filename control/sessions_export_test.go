package control

import (
	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// IsDialled says whether the address that leads to a connection is known, not only
// claimed by its peer.
func IsDialled(c *Conn) bool { return c.s.Peer().Dialled }

// GlobalSeq is the number of the last attempt to connect.
func GlobalSeq(m *Messenger) uint64 { return m.s.Attempts().Msgr2 }

// LocksTaken is how often the messenger's lock was taken before, in builds that check it.
func (m *Messenger) LocksTaken() uint64 { return m.s.LocksTaken() }

// RawPlane is the messenger's group of cores, for tests that break them.
func (m *Messenger) RawPlane() *loop.Plane { return m.plane }

// SetLoader has the messenger load its steering programs by f. It comes before
// Bind.
func (m *Messenger) SetLoader(f func(bpf.Config) (*bpf.Steering, error)) { m.s.Load(f) }

// Unhold is the end of an injected delay.
func Unhold(c *Conn) { c.unhold() }
