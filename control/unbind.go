package control

import "errors"

// Unbind stops accepting: the listeners of all cores are closed. Connections
// and their sessions go on, and what Addrs tells to peers stays. Rebind listens
// again. Not for a dispatcher on a core.
func (m *Messenger) Unbind() error {
	listeners, taken := m.listeners.Take()
	m.steering.Close(taken)
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
