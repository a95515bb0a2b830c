//go:build epoll

package loop

import "github.com/ringmsgr/ringmsgr/uring"

// engines of this build, which links no ring.
var engines = []engine{{"epoll", uring.Epoll, ReceiveReady}}
