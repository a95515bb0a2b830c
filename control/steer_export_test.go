package control

import "github.com/ringmsgr/ringmsgr/bpf"

// SetLoader has the messenger load its steering programs by f. It comes before
// Bind.
func (m *Messenger) SetLoader(f func(bpf.Config) (*bpf.Steering, error)) {
	m.steering = m.newSteerer(f)
}
