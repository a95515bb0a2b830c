// Package localsock has the Unix sockets by which processes of one user talk to
// each other: for statistics and for a hand-over. [Listen] makes one that nobody
// else can connect to, and [SameUser] checks who has connected. All functions may
// be called by any goroutine.
package localsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen listens on a Unix socket that only processes of our user can connect
// to: at a path, where it takes the place of what another process has there, or
// under an abstract name that begins with "@" and has no such protection. There
// is no moment at which the path is missing or open to others. Close removes the
// path, unless somebody else has taken it meanwhile.
func Listen(path string) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		return net.Listen("unix", path)
	}
	if old, err := os.Lstat(path); err == nil && old.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("listen on %s: it is there, and no socket: %w", path, os.ErrExist)
	}
	// Under its name it appears when it is complete.
	draft := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(draft); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	ul, err := bindPrivate(draft)
	if err != nil {
		return nil, err
	}
	l := &privateListener{UnixListener: ul, path: path}
	// The umask may have taken more than others have.
	if err = os.Chmod(draft, 0o600); err == nil {
		l.file, err = os.Lstat(draft)
	}
	if err == nil {
		err = os.Rename(draft, path)
	}
	if err != nil {
		_ = ul.Close()       // nobody has seen it
		_ = os.Remove(draft) // the same
		return nil, err
	}
	return l, nil
}

// bindPrivate makes a socket to which nobody else can connect, whatever the
// umask: the path gets the mode that the socket has before it is bound.
func bindPrivate(path string) (*net.UnixListener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		ctl := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(ctl, err)
	}}
	l, err := cfg.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	return ul, nil
}

type privateListener struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// Addr is the path.
func (l *privateListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

// Close stops listening, and removes the path if it is still ours.
func (l *privateListener) Close() error {
	err := l.remove()
	if os.IsNotExist(err) {
		err = nil
	}
	if err = errors.Join(err, l.UnixListener.Close()); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// remove looks at what it removes once more: another process may take the path
// between a look and a removal, and gets it back then.
func (l *privateListener) remove() error {
	now, err := os.Lstat(l.path)
	if err != nil || !os.SameFile(now, l.file) {
		return err
	}
	doomed := fmt.Sprintf("%s.%d.old", l.path, os.Getpid())
	if err := os.Rename(l.path, doomed); err != nil {
		return err
	}
	if now, err = os.Lstat(doomed); err == nil && !os.SameFile(now, l.file) {
		// Unless a third one is there by now.
		err = unix.Renameat2(unix.AT_FDCWD, doomed, unix.AT_FDCWD, l.path, unix.RENAME_NOREPLACE)
		if err == nil {
			return nil
		}
	}
	return os.Remove(doomed)
}

// SameUser checks that the process at the other end is one of our user, or of
// root.
func SameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	ctl := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(ctl, err); err != nil {
		return fmt.Errorf("who is there: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the other process belongs to user %d: %w", cred.Uid, os.ErrPermission)
	}
	return nil
}
