//go:build epoll

package uring

// probeRing has none to open.
func probeRing(m *Machine, _ []string) {
	m.RingWhy = "this program was built with -tags epoll, without any ring code"
}
