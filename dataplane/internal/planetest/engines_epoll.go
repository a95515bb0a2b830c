//go:build epoll

package planetest

import "github.com/ringmsgr/ringmsgr/uring"

// Engines of this build, which links no ring.
func Engines() []Engine {
	return []Engine{{"epoll", uring.Epoll, "ready"}}
}
