package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

const (
	// queueRecords bounds the number of records that wait for the file.
	queueRecords = 16 << 10
	// defaultMaxBytes is the bound of a trace file.
	defaultMaxBytes = 64 << 20
)

// Options of a Log. The zero value is a good default.
type Options struct {
	// Cut is the number of recorded bytes of front, of middle and of data of a message;
	// 0: DefaultCut, negative: none.
	Cut int
	// MaxBytes bounds the file. At the bound it becomes FILE.1, and a new one is begun;
	// 0: 64 MiB. A pipe or a device has no bound.
	MaxBytes int64
	// Now is the time of records; nil: the machine's.
	Now func() time.Time
}

// Log writes the frames of the messengers that have it as their Config.Diagnostics.Tracer to a file.
// All methods may be called by any goroutine.
type Log struct {
	opt      Options
	queue    chan entry
	sockets  atomic.Uint64 // number of the last socket, over all messengers
	done     chan struct{}
	pipe     *os.File      // the first file, which is the only one of a pipe
	patience time.Duration // of Close, with a pipe that nobody reads

	mu     sync.Mutex
	closed bool
	lost   uint64 // records that found no room behind the last one in the queue

	out rotating // of the writing goroutine
}

// entry is a record in the queue.
type entry struct {
	Record
	lost uint64 // number of records before it that found no room
}

var _ probe.Tracer = (*Log)(nil)

// Create begins a trace in a file, which it makes; other users cannot read it. An existing
// file becomes FILE.1, and a link to a file is an error. Close ends the trace; call it once the
// messengers that write to it are shut down.
func Create(path string, opt Options) (*Log, error) {
	if opt.Cut == 0 {
		opt.Cut = DefaultCut
	}
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = defaultMaxBytes
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	l := &Log{opt: opt, queue: make(chan entry, queueRecords), done: make(chan struct{}), patience: 5 * time.Second}
	l.out = rotating{path: path, most: opt.MaxBytes}
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		if st.Size() > 0 {
			err = os.Rename(path, path+".1")
		} else {
			err = os.Remove(path) // others may read it
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	if err := l.out.open(); err != nil {
		return nil, err
	}
	l.pipe = l.out.file
	go l.write()
	return l, nil
}

// Close writes the queued records and closes the file; a pipe has 5 s for that. It returns the first error of the
// file: later records were not written.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
		_ = l.pipe.SetWriteDeadline(time.Now().Add(l.patience)) // no other file has one
	}
	l.mu.Unlock()
	<-l.done
	return l.out.err
}

// Trace implements probe.Tracer.
func (l *Log) Trace(s probe.TracedSocket) probe.Tap {
	r := Record{Event: Open, Connector: s.Local.String(), Acceptor: s.Peer.String(), Recorder: Connector}
	if s.Accepted {
		r.Connector, r.Acceptor, r.Recorder = r.Acceptor, r.Connector, Acceptor
	}
	t := &socket{log: l, id: l.sockets.Add(1), own: r.Recorder}
	t.put(r)
	return t
}

// put queues a record, or counts it as lost.
func (l *Log) put(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	select {
	case l.queue <- entry{r, l.lost}:
		l.lost = 0
	default:
		l.lost++
	}
}

// write is the goroutine that owns the file.
func (l *Log) write() {
	defer close(l.done)
	for e := range l.queue {
		l.writeLost(e.Time, e.lost)
		l.out.record(&e.Record)
		if len(l.queue) == 0 {
			l.out.flush()
		}
	}
	l.writeLost(l.opt.Now(), l.lost) // which nobody changes any more
	l.out.close()
}

func (l *Log) writeLost(at time.Time, n uint64) {
	if n > 0 {
		l.out.record(&Record{Time: at, Event: Lost, Count: n, Error: "the queue for the file was full"})
	}
}

// socket is the tap of one TCP connection.
type socket struct {
	log      *Log
	id       uint64
	own      Side
	protocol atomic.Pointer[string]
	offers   uint64 // of our banner; of the goroutine of the handshake
	ended    atomic.Bool
}

func (t *socket) put(r Record) {
	r.Time, r.Socket = t.log.opt.Now(), t.id
	t.log.put(r)
}

func (t *socket) from(sent bool) Side {
	if sent {
		return t.own
	}
	return t.own.Other()
}

// Banner implements probe.Tap.
func (t *socket) Banner(sent bool, supported, required uint64) {
	if sent {
		t.offers = supported
	} else {
		name := wire2.RevisionOf(supported & t.offers).String()
		t.protocol.Store(&name)
	}
	f := &Fields{Supported: wire.Features(supported), Required: wire.Features(required)}
	t.put(Record{Event: Banner, From: t.from(sent), Protocol: "msgr2", Fields: f})
}

// Frame implements probe.Tap.
func (t *socket) Frame(f probe.Frame) {
	if t.ended.Load() {
		return
	}
	r := Record{From: t.from(f.Sent), Compressed: f.Compressed, Aborted: f.Aborted}
	if p := t.protocol.Load(); p != nil {
		r.Protocol = *p
	}
	r.describe2(f.Tag, &f.Seg, t.log.opt.Cut)
	t.put(r)
}

// Part implements probe.Tap.
func (t *socket) Part(p probe.Part) {
	if t.ended.Load() {
		return
	}
	r := Record{From: t.from(p.Sent)}
	if err := r.describe1(&p, t.log.opt.Cut); err != nil {
		r.Fields, r.Error = nil, err.Error()
	}
	t.put(r)
}

// Ended implements probe.Tap.
func (t *socket) Ended(why error) {
	if t.ended.Swap(true) {
		return
	}
	r := Record{Event: End}
	if why != nil {
		r.Error = why.Error()
	}
	t.put(r)
}

// rotating is the file. After an error it writes no more.
type rotating struct {
	path string
	most int64
	file *os.File
	buf  *bufio.Writer
	size int64
	err  error
}

func (f *rotating) open() error {
	file, err := openOwn(f.path, false)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	st, err := file.Stat()
	if err != nil {
		_ = file.Close() // nothing was written
		return fmt.Errorf("trace: %w", err)
	}
	if !st.Mode().IsRegular() {
		f.most = math.MaxInt64 // a pipe or a device has no bound, and keeps its name
	}
	f.file, f.buf, f.size = file, bufio.NewWriterSize(file, 64<<10), 0
	return nil
}

func (f *rotating) record(r *Record) {
	if f.err != nil {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		f.err = fmt.Errorf("trace: %w", err)
		return
	}
	line = append(line, '\n')
	if f.size > 0 && f.size+int64(len(line)) > f.most {
		if f.rotate(); f.err != nil {
			return
		}
	}
	n, err := f.buf.Write(line)
	f.size += int64(n)
	f.keep(err)
}

// rotate renames the file and begins a new one.
func (f *rotating) rotate() {
	f.flush()
	f.keep(f.file.Close())
	f.file = nil
	if f.err == nil {
		f.keep(os.Rename(f.path, f.path+".1"))
	}
	if f.err == nil {
		f.err = f.open()
	}
}

func (f *rotating) flush() {
	if f.err == nil {
		f.keep(f.buf.Flush())
	}
}

func (f *rotating) close() {
	f.flush()
	if f.file != nil {
		f.keep(f.file.Close())
	}
}

func (f *rotating) keep(err error) {
	if err != nil && f.err == nil && !errors.Is(err, os.ErrClosed) {
		f.err = fmt.Errorf("trace: %w", err)
	}
}

// CreateKeys opens a file for Config.Diagnostics.KeyLog. It makes the file, or appends to one that
// belongs to us and that nobody else can read; any other file is an error. The caller closes it.
func CreateKeys(path string) (*os.File, error) { return openOwn(path, true) }

// openOwn opens a file to append to that no other user can read or has chosen: a new one; with
// again also one that is there, if it is private; or a pipe or a device, to which a link of ours, or
// of root, may lead.
func openOwn(path string, again bool) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND
	file, err := os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600)
	if !errors.Is(err, fs.ErrExist) {
		return file, err
	}
	// The open of a pipe, which another user may have made, does not wait for a reader.
	if file, err = os.OpenFile(path, flags|syscall.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	named, err := os.Lstat(path)
	st, opened := file.Stat()
	if err = errors.Join(err, opened); err == nil {
		err = ownFile(named, st, again)
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return file, nil
}

// ownFile says why others may have chosen the file st, or can read it. named is the file itself, or
// the link that has led to it.
func ownFile(named, st fs.FileInfo, again bool) error {
	owner := named.Sys().(*syscall.Stat_t).Uid
	switch {
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d: %w", owner, fs.ErrPermission)
	case !st.Mode().IsRegular():
		return nil
	case !again || !os.SameFile(named, st):
		return fs.ErrExist
	case st.Sys().(*syscall.Stat_t).Nlink > 1:
		return fmt.Errorf("it has another name: %w", fs.ErrExist) // whoever gave it this one has chosen it
	case st.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may read it, mode %v: %w", st.Mode().Perm(), fs.ErrPermission)
	}
	return nil
}
