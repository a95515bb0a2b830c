//go:build !epoll

package loop

import "github.com/ringmsgr/ringmsgr/uring"

// engines of this build, with the receive modes that each of them has.
var engines = []engine{
	{"ring/auto", uring.IOUring, ReceiveAuto},
	{"ring/ready", uring.IOUring, ReceiveReady},
	{"ring/buffers", uring.IOUring, ReceiveBuffers},
	{"epoll", uring.Epoll, ReceiveReady},
}
