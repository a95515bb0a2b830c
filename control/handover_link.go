package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	filesMax     = 4096 // descriptors of one hand-over
	filesPerCall = 64   // descriptors in one message; the kernel takes 253
)

// handoverLink is one side of a hand-over: records, and the descriptors that
// come with them. It ends with its context.
type handoverLink struct {
	conn  *net.UnixConn
	in    *bufio.Reader
	out   *bufio.Writer
	files []int // received, not taken yet
	stop  func() bool
}

func newHandoverLink(ctx context.Context, conn *net.UnixConn) *handoverLink {
	l := &handoverLink{conn: conn, out: bufio.NewWriterSize(conn, payloadMax)}
	l.in = bufio.NewReaderSize(received{l}, payloadMax)
	l.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // fails on a closed one only
	return l
}

// close gives up what nobody took. The connection stays open.
func (l *handoverLink) close() {
	l.stop()
	closeAll(l.files)
	l.files = nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// samePerson checks that the other process runs as our user or as root: who it
// is gets all sessions.
func (l *handoverLink) samePerson() error {
	if err := sameUser(l.conn); err != nil {
		return badRecord("%w", err)
	}
	return nil
}

// received reads from the socket and keeps the descriptors that come along.
type received struct{ *handoverLink }

func (l received) Read(p []byte) (int, error) {
	var oob [512]byte // more than filesPerCall take
	n, oobn, flags, _, err := l.conn.ReadMsgUnix(p, oob[:])
	if e := l.keep(oob[:oobn]); e != nil {
		return 0, e
	}
	switch {
	case err != nil:
		return max(n, 0), err
	case flags&unix.MSG_CTRUNC != 0:
		return 0, badRecord("descriptors were cut off: too many are open here")
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (l *handoverLink) keep(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return badRecord("control message: %w", err)
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			return badRecord("control message: %w", err)
		}
		l.files = append(l.files, fds...)
	}
	if len(l.files) > filesMax {
		return badRecord("%d descriptors", len(l.files))
	}
	return nil
}

// take hands out n of the received descriptors, in their order.
func (l *handoverLink) take(n int) ([]int, error) {
	if n > len(l.files) {
		return nil, badRecord("%d descriptors announced, %d came", n, len(l.files))
	}
	fds := l.files[:n:n]
	l.files = l.files[n:]
	return fds, nil
}

// send writes a record at once.
func (l *handoverLink) send(t recordType, payload []byte) error {
	if err := writeRecord(l.out, t, payload); err != nil {
		return fmt.Errorf("%w: %w", ErrHandOver, err)
	}
	if err := l.out.Flush(); err != nil {
		return fmt.Errorf("%w: %w", ErrHandOver, err)
	}
	return nil
}

// sendFiles writes records that carry descriptors; each says how many.
func (l *handoverLink) sendFiles(t recordType, fds []int) error {
	for len(fds) > 0 {
		n := min(len(fds), filesPerCall)
		p := []byte{byte(t), 4, 0, 0, 0}
		p = le.AppendUint32(p, uint32(n))
		// Far below what a stream socket takes at once, and nothing is before it.
		sent, _, err := l.conn.WriteMsgUnix(p, unix.UnixRights(fds[:n]...), nil)
		if err != nil {
			return fmt.Errorf("%w: %v: %w", ErrHandOver, t, err)
		}
		if sent < len(p) {
			if _, err := l.conn.Write(p[sent:]); err != nil {
				return fmt.Errorf("%w: %v: %w", ErrHandOver, t, err)
			}
		}
		fds = fds[n:]
	}
	return nil
}

// readFiles reads n descriptors that come with records of type t.
func (l *handoverLink) readFiles(t recordType, n int) ([]int, error) {
	var all []int
	for len(all) < n {
		p, err := expect(l.in, t)
		if err == nil && (len(p) != 4 || le.Uint32(p) == 0 || int64(le.Uint32(p)) > int64(n-len(all))) {
			err = badRecord("%v of %d bytes", t, len(p))
		}
		var fds []int
		if err == nil {
			fds, err = l.take(int(le.Uint32(p)))
		}
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

// refuse tells the other side why, if it still listens.
func (l *handoverLink) refuse(err error) {
	text := err.Error()
	l.out.Reset(l.conn)
	_ = l.send(recordRefused, []byte(text[:min(len(text), textMax)])) // it learns of the end in any case
}

// verdict waits for the successor's commit. When the wait fails, the successor
// is kept from committing behind our back: its write fails from the moment of
// the shutdown, and what it wrote before is still read.
func (l *handoverLink) verdict() error {
	_, err := expect(l.in, recordCommitted)
	if err == nil {
		return nil
	}
	_ = l.conn.CloseRead() // fails only if the other side has gone, and that reads as the end
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.conn.SetReadDeadline(time.Time{})
		if _, late := expect(l.in, recordCommitted); late == nil {
			return nil
		}
	}
	return err
}
