package control

import "github.com/ringmsgr/ringmsgr/bpf"

// SetLoader has the messenger load its steering programs by f.
func (m *Messenger) SetLoader(f func(bpf.Config) (*bpf.Steering, error)) { m.load = f }
