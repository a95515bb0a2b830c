package handover

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/layout"
	"github.com/ringmsgr/ringmsgr/control/internal/localsock"
)

const (
	filesMax     = 4096 // descriptors of one hand-over
	filesPerCall = 64   // descriptors in one message; the kernel takes 253
)

// link is one side of a hand-over: records, and the descriptors that come with
// them.
type link struct {
	conn  *net.UnixConn
	in    *bufio.Reader
	out   *bufio.Writer
	files []int     // received, not taken yet
	oob   [512]byte // for more than filesPerCall take
	stop  func() bool
}

// newLink speaks over conn, which stays the caller's. The end of ctx ends the call under
// way, and conn is of no use any more.
func newLink(ctx context.Context, conn *net.UnixConn) *link {
	l := &link{conn: conn, out: bufio.NewWriterSize(conn, payloadMax)}
	l.in = bufio.NewReaderSize(received{l}, payloadMax)
	l.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // fails on a closed one only
	return l
}

// close closes descriptors that no call has returned. The connection stays open.
func (l *link) close() {
	l.stop()
	CloseFiles(l.files)
	l.files = nil
}

// CloseFiles closes descriptors that are not needed any more.
func CloseFiles(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// sameUser checks that the other process runs as our user or as root, as it
// gets all sessions.
func (l *link) sameUser() error {
	if err := localsock.SameUser(l.conn); err != nil {
		return Errorf("%w", err)
	}
	return nil
}

// received reads from the socket and keeps the descriptors that come along.
type received struct{ *link }

func (l received) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := l.conn.ReadMsgUnix(p, l.oob[:])
	if e := l.keep(l.oob[:oobn]); e != nil {
		return 0, e
	}
	switch {
	case err != nil:
		return max(n, 0), err
	case flags&unix.MSG_CTRUNC != 0:
		return 0, Errorf("descriptors were cut off: too many are open here")
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (l *link) keep(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return Errorf("control message: %w", err)
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			return Errorf("control message: %w", err)
		}
		l.files = append(l.files, fds...)
	}
	if len(l.files) > filesMax {
		return Errorf("%d descriptors", len(l.files))
	}
	return nil
}

// take hands out n of the received descriptors, in their order.
func (l *link) take(n int) ([]int, error) {
	if n > len(l.files) {
		return nil, Errorf("%d descriptors announced, %d came", n, len(l.files))
	}
	fds := l.files[:n:n]
	l.files = l.files[n:]
	return fds, nil
}

// send writes a record at once.
func (l *link) send(t recordType, appendTo func([]byte) []byte) error {
	err := writeRecord(l.out, t, appendTo)
	if err == nil {
		err = l.out.Flush()
	}
	if err != nil {
		return Errorf("%w", err)
	}
	return nil
}

// sendFiles writes records that carry duplicates of descriptors; each says how many. They stay
// the caller's.
func (l *link) sendFiles(t recordType, fds []int) error {
	if len(fds) > filesMax {
		return Errorf("%d %v", len(fds), t)
	}
	for len(fds) > 0 {
		n := min(len(fds), filesPerCall)
		p := [recordHead + 4]byte{byte(t), 4}
		le.PutUint32(p[recordHead:], uint32(n))
		// A stream socket takes far more at once, and its buffer is empty.
		sent, _, err := l.conn.WriteMsgUnix(p[:], unix.UnixRights(fds[:n]...), nil)
		if err == nil && sent < len(p) {
			_, err = l.conn.Write(p[sent:])
		}
		if err != nil {
			return Errorf("%v: %w", t, err)
		}
		fds = fds[n:]
	}
	return nil
}

// readFiles reads n descriptors that come with records of type t. The caller owns them.
func (l *link) readFiles(t recordType, n int) ([]int, error) {
	var all []int
	for len(all) < n {
		p, err := expect(l.in, t)
		if err == nil && (len(p) != 4 || le.Uint32(p) == 0 || int64(le.Uint32(p)) > int64(n-len(all))) {
			err = Errorf("%v of %d bytes", t, len(p))
		}
		var fds []int
		if err == nil {
			fds, err = l.take(int(le.Uint32(p)))
		}
		if err != nil {
			CloseFiles(all)
			return nil, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

// refuse sends the reason to the other side, if it still listens.
func (l *link) refuse(err error) {
	text := err.Error()
	l.out.Reset(l.conn)
	// It learns of the end in any case.
	_ = l.send(recordRefused, func(p []byte) []byte { return append(p, text[:min(len(text), textMax)]...) })
}

// nothing is the payload of a record that says all by its type.
func nothing(p []byte) []byte { return p }

// sendFields sends a record of fields.
func (l *link) sendFields(t recordType, s layout.Structure) error {
	return l.send(t, func(p []byte) []byte { return layout.Append(p, s) })
}

// read reads the record of fields that is due.
func (l *link) read(t recordType, s layout.Structure) error {
	p, err := expect(l.in, t)
	if err != nil {
		return err
	}
	return decode(p, t, s)
}

// awaitCommitted waits for the successor's commit. When the wait fails, it keeps the
// successor from a later commit: after the shutdown the successor's write fails, and bytes
// that it wrote before are still read.
func (l *link) awaitCommitted() error {
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
