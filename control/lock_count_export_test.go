//go:build invariants || race

package control

// LocksTaken is how often the messenger's lock was taken before.
func (m *Messenger) LocksTaken() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.check.taken - 1
}
