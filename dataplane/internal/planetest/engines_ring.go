//go:build !epoll

package planetest

import "github.com/ringmsgr/ringmsgr/uring"

// Engines of this build, with the receive modes that each of them has.
func Engines() []Engine {
	return []Engine{
		{"ring/auto", uring.IOUring, "auto"},
		{"ring/ready", uring.IOUring, "ready"},
		{"ring/buffers", uring.IOUring, "buffers"},
		{"epoll", uring.Epoll, "ready"},
	}
}
