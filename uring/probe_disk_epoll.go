//go:build epoll

package uring

// probeRing has none to try.
func (s *DiskSupport) probeRing(int) {
	s.RegisteredWhy = "this program was built with -tags epoll, without any ring code"
	s.PolledWhy = s.RegisteredWhy
}
