package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/uring"
)

// cause is why a system call failed, without the names of the functions and
// sockets that it went through; any other error as it is.
func cause(err error) string { return scope.Cause(err).Error() }

// bindError says which address cannot be listened on.
func (l *listenFlag) bindError(err error) error {
	where := l.addrs.String()
	if len(l.addrs) == 1 {
		where = l.addrs[0].String()
	}
	if errors.Is(err, control.ErrNoPort) && l.ports.First != 0 {
		where = strings.ReplaceAll(where, ":0/", ":"+l.ports.String()+"/")
		return fmt.Errorf("--listen %s: no free port: %v: %s", where, l.ports, cause(err))
	}
	return fmt.Errorf("--listen %s: %s", where, cause(err))
}

// startError names the flag that asked for a ring, if there is none.
func (o *machineOptions) startError(err error) error {
	var refused *uring.SetupError
	if o.engine.Backend == string(uring.IOUring) && errors.As(err, &refused) {
		return fmt.Errorf("--backend %s: %w", o.engine.Backend, err)
	}
	return err
}

// statsError says what is wrong with the statistics of another process.
func statsError(path string, err error) error {
	return fmt.Errorf("no statistics at %s: %s; does the process serve statistics (serve --stats), and is it yours?", path, cause(err))
}

// gone says whether no process serves a Unix socket any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, net.ErrClosed)
}
