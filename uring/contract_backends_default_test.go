//go:build !epoll && !giouring

package uring_test

import "github.com/ringmsgr/ringmsgr/uring"

// backends are the drivers of this build.
var backends = []uring.Backend{uring.IOUring, uring.Epoll}
