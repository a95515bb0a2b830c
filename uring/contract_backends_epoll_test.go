//go:build epoll

package uring_test

import "github.com/ringmsgr/ringmsgr/uring"

// backends are the drivers of this build.
var backends = []uring.Backend{uring.Epoll}
