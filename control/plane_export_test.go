package control

import "github.com/ringmsgr/ringmsgr/dataplane"

// RawPlane is the messenger's group of cores, for tests that break them.
func (m *Messenger) RawPlane() *dataplane.Plane { return m.plane }
