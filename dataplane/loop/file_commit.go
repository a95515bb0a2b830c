package loop

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Writes that wait for durability share syncs. A write that has ended waits for a sync; a
// sync covers the writes that wait when it begins, and later ones wait for the next sync.
// So under load more writes share a sync, without a chosen delay. Where syncs are
// expensive and few writes come at once, FileOptions.CommitDelay has the first one wait
// for others.

// ErrNotDurable is the error of a write that was done but is not known to be durable: it
// may be lost, or not.
var ErrNotDurable = errors.New("loop: not durable")

// PoisonError says that a sync of a file failed: writes since the last successful sync may be
// lost, and the kernel reports that only once. Every request that waits for durability ends
// with it, and the file takes no further write or sync. Reads go on, so that a program can
// copy the rest to another file.
type PoisonError struct {
	File  string
	Cause unix.Errno
}

// Error is one line.
func (e *PoisonError) Error() string {
	return fmt.Sprintf("%s: %v: a sync failed: %v", e.File, ErrNotDurable, e.Cause)
}

// Unwrap returns ErrNotDurable and the errno.
func (e *PoisonError) Unwrap() []error { return []error{ErrNotDurable, e.Cause} }

// commit is the group commit of a file. Owner: the core.
type commit struct {
	file    *File
	waiting opLine        // not covered by a sync
	bytes   int64         // their bytes
	hurries bool          // one of them waits for no others (Through)
	since   time.Duration // the time of the first of them
	batch   opLine        // covered by the sync under way
	syncing bool
	marked  bool // in core.commits
	timer   Timer
}

// add has op wait for durability.
func (m *commit) add(op *FileOp) {
	c := m.file.core
	if m.waiting.first == nil {
		m.since, m.bytes = c.now, 0
	}
	m.waiting.push(op)
	m.bytes += op.length
	m.hurries = m.hurries || op.how == Through
	c.stats.Files.Uncommitted++
	m.mark()
}

// mark has the file looked at before the core's next system call.
func (m *commit) mark() {
	if c := m.file.core; !m.marked {
		m.marked = true
		c.commits = append(c.commits, m)
	}
}

// commitFiles begins the syncs that are due.
func (c *Core) commitFiles() {
	for i, m := range c.commits {
		c.commits[i] = nil
		m.marked = false
		m.due()
	}
	c.commits = c.commits[:0]
}

func (m *commit) due() {
	f, c := m.file, m.file.core
	if m.syncing || m.waiting.first == nil {
		return
	}
	if at := m.since + f.opt.CommitDelay; f.opt.CommitDelay > 0 && c.now < at && m.bytes < f.opt.commitBytes && !m.hurries {
		c.timers.arm(&m.timer, at)
		return
	}
	c.timers.stop(&m.timer)
	m.batch, m.waiting, m.bytes, m.hurries = m.waiting, opLine{}, 0, false
	c.stats.Files.Uncommitted -= int64(m.batch.n)
	if _, err := c.drv.AskFile(f.sock, uring.FileRequest{Kind: uring.KindSync, User: f.user}); err != nil {
		// The kernel has not been asked, so that nothing is lost by this.
		m.failBatch(fmt.Errorf("%s: %w: %w", f.name, ErrNotDurable, err))
		return
	}
	m.syncing = true
	c.stats.Files.Syncs++
}

// complete takes the driver's answer to the sync.
func (f *File) complete(c *Core, cp *uring.Completion) {
	m := &f.commit
	m.syncing = false
	switch errno := cp.Errno(); {
	case errno == 0:
		c.stats.Files.Commits += uint64(m.batch.n)
		batch := m.batch
		m.batch = opLine{}
		for op := batch.pop(); op != nil; op = batch.pop() {
			op.end(nil)
		}
	case errno == unix.ECANCELED:
		err := f.ended
		if err == nil {
			err = errno
		}
		m.failBatch(fmt.Errorf("%s: %w: %w", f.name, ErrNotDurable, err))
	default:
		f.poison(errno)
	}
	if m.waiting.first != nil {
		m.mark()
	}
	f.atRest()
	f.tellRoom()
}

// poison ends everything that waits for durability.
func (f *File) poison(cause unix.Errno) {
	if f.wrong == nil {
		f.wrong = &PoisonError{File: f.name, Cause: cause}
		f.core.stats.Files.Poisoned++
		f.core.cfg.Logger.Error("a sync failed: bytes that were not durable may be lost, and the file takes no more writes",
			"core", f.core.id, "file", f.name, "err", cause)
	}
	f.commit.failBatch(f.wrong)
	f.commit.fail(f.wrong)
	var reads opLine
	for op := f.line.pop(); op != nil; op = f.line.pop() {
		if op.kind == uring.KindRead {
			reads.push(op)
			continue
		}
		f.core.stats.Files.Waiting--
		op.endLater(f.wrong)
	}
	f.line = reads
}

// fail ends the requests that no sync covers yet.
func (m *commit) fail(err error) {
	m.file.core.stats.Files.Uncommitted -= int64(m.waiting.n)
	for op := m.waiting.pop(); op != nil; op = m.waiting.pop() {
		op.endLater(err)
	}
	m.bytes, m.hurries = 0, false
}

// failBatch ends the requests that the ended sync covered.
func (m *commit) failBatch(err error) {
	for op := m.batch.pop(); op != nil; op = m.batch.pop() {
		op.endLater(err)
	}
}
