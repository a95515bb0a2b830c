//go:build giouring && !epoll

package interop_test

import "github.com/ringmsgr/ringmsgr/uring"

// backends are the I/O engines of this build. The epoll one is the same as in
// the default build.
var backends = []uring.Backend{uring.IOUring}
