package load

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// connectTimeout bounds connecting and the handshake together.
const connectTimeout = 10 * time.Second

// connect opens one connection, up to the data phase, and returns its
// non-blocking descriptor, which is the caller's, and of msgr2 its codecs.
// nonce makes it a client of its own.
func connect(ctx context.Context, o Options, nonce uint32) (fd int, enc *frame.Encoder, dec *frame.Decoder, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return -1, nil, nil, err
	}
	defer c.Close()
	tcp := c.(*net.TCPConn) // without delay, which is net's default
	switch {
	case o.Raw:
	case o.Msgr1:
		err = session.Connect1(ctx, tcp, o.Nonce, nonce)
	default:
		enc, dec, err = session.Connect(ctx, tcp, o.Nonce, nonce, o.Secure)
	}
	if err != nil {
		return -1, nil, nil, fmt.Errorf("handshake: %w", err)
	}
	fd, err = Detach(tcp)
	return fd, enc, dec, err
}

// Detach duplicates the descriptor of c, so that it outlives c. It stays non-blocking.
func Detach(c syscall.Conn) (int, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var failed error
	err = rc.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = cmp.Or(err, failed); err != nil {
		return -1, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return fd, nil
}
