//go:build !race

package sim_test

// In two of three seeds drivers have receive buffers, so that connections go over to
// them and back; in the others they read by readiness alone, as with epoll. Buffers are
// few, so that they run out. The size is the seed's, and changes nothing else about it.

// receiveBuffersOf is how many bytes of receive buffers each driver of a seed has. Seeds
// that found a bug without keep the course on which they did.
func receiveBuffersOf(seed uint64) int {
	if seed%3 == 0 {
		return 0
	}
	for _, r := range simRegressions {
		if r.seed == seed {
			return 0
		}
	}
	for _, r := range adversaryRegressions {
		if r.seed == seed {
			return 0
		}
	}
	return 2 << (10 + seed/3%6)
}
