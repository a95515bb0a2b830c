//go:build !epoll && !giouring

package interop_test

import "github.com/ringmsgr/ringmsgr/uring"

// backends are the I/O engines of this build.
var backends = []uring.Backend{uring.IOUring, uring.Epoll}
