package control_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

const diskLatency = 5 * time.Millisecond

func numbers(n uint32) (list []uint32) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

func TestBlocksAreWrittenDurablyAndReadBackOnTheCore(t *testing.T) {
	overDisks(t, diskOptions{}, func(t *testing.T, b *blockBed) {
		const n = 32
		for _, a := range b.ask(writeBlock, numbers(n)...) {
			if a.err != nil || a.failed != "" {
				t.Fatalf("write: %+v", a)
			}
		}
		st := b.files().Files
		if st.Writes != n || st.Commits != n || st.Syncs == 0 || st.Ops != 0 {
			t.Errorf("answered with %+v", st)
		}
		for _, a := range b.ask(readBlock, numbers(n)...) {
			if a.err != nil || a.failed != "" || !bytes.Equal(a.data, blockOf(a.number)) {
				t.Fatalf("read: %v %q, %d bytes", a.err, a.failed, len(a.data))
			}
		}
		if a := b.one(readBlock, n+1); !strings.Contains(a.failed, "EOF") {
			t.Errorf("behind the end: %+v", a)
		}
	})
}

// The buffer of an answer that was released is that of a later one.
func TestACRCIsSetForOneMessageOfACoreOnly(t *testing.T) {
	serve := func(c *control.Conn, m *control.Message) bool {
		n := binary.LittleEndian.Uint32(m.Front)
		answer, err := control.LendMessage(c.Core(), blockDone, blockSize)
		must(t, err)
		copy(answer.Data, blockOf(n))
		if n%2 == 0 {
			answer.SetDataCRC(crc32.Checksum(answer.Data, crc32.MakeTable(crc32.Castagnoli)))
		}
		must(t, c.Later(m).Send(answer))
		return true
	}
	overDisks(t, diskOptions{serve: serve}, func(t *testing.T, b *blockBed) {
		for _, n := range numbers(16) {
			if a := b.one(readBlock, n); a.err != nil || !bytes.Equal(a.data, blockOf(n)) {
				t.Fatalf("%d: %v, %d bytes", n, a.err, len(a.data))
			}
		}
		if st, err := b.conn.Stats(); err != nil || st.Counters.Faults != 0 {
			t.Errorf("%+v, %v", st.Counters, err)
		}
	})
}

// A write and the sync behind it each take the latency of the disk.
func TestAnAnswerComesBehindTheSyncThatCoversItsWrite(t *testing.T) {
	onPair(t, diskOptions{}, func(t *testing.T, b *blockBed, p *pair.Pair) {
		began := time.Now()
		if a := b.one(writeBlock, 1); a.err != nil || a.failed != "" {
			t.Fatalf("%+v", a)
		}
		if took := time.Since(began); took < 2*diskLatency {
			t.Errorf("answered after %v", took)
		}
		p.Do(func() {
			if c := p.ServerHost.Disk().Counts(); c.Syncs != 1 || c.Writes != 1 {
				t.Errorf("%+v", c)
			}
		})
	})
}

func TestAnErrorOfTheDiskReachesExactlyItsRequest(t *testing.T) {
	for kind, typ := range map[uring.Kind]uint16{uring.KindWrite: writeBlock, uring.KindRead: readBlock} {
		overDisks(t, diskOptions{}, func(t *testing.T, b *blockBed) {
			b.ask(writeBlock, numbers(16)...)
			b.fail(kind)
			failed := 0
			for _, a := range b.ask(typ, numbers(16)...) {
				if a.err != nil {
					t.Fatal(a.err)
				}
				if strings.Contains(a.failed, unix.EIO.Error()) {
					failed++
				} else if a.failed != "" || typ == readBlock && !bytes.Equal(a.data, blockOf(a.number)) {
					t.Errorf("%q", a.failed)
				}
			}
			if failed != 1 {
				t.Errorf("%d requests failed", failed)
			}
			if a := b.one(typ, 1); a.failed != "" {
				t.Errorf("the next one: %s", a.failed)
			}
		})
	}
}

func TestAFileWhoseSyncFailedTakesNoMoreWrites(t *testing.T) {
	overDisks(t, diskOptions{}, func(t *testing.T, b *blockBed) {
		b.one(writeBlock, 1)
		b.fail(uring.KindSync)
		for range 2 {
			if a := b.one(writeBlock, 2); !strings.Contains(a.failed, loop.ErrNotDurable.Error()) {
				t.Errorf("a write: %+v", a.failed)
			}
		}
		if a := b.one(readBlock, 1); a.failed != "" || !bytes.Equal(a.data, blockOf(1)) {
			t.Errorf("a read: %q", a.failed)
		}
		b.on(func(_ *loop.Core, s *blockStore) {
			var wrong *loop.PoisonError
			if err := s.file.Poisoned(); !errors.As(err, &wrong) || wrong.Cause != unix.EIO || wrong.File != s.file.Name() {
				t.Errorf("poisoned: %v", err)
			}
		})
	})
}

// A core that is removed goes on until its file is closed, and so long serves it.
func TestACoreThatIsRemovedWaitsForItsFiles(t *testing.T) {
	overDisks(t, diskOptions{cores: 2}, func(t *testing.T, b *blockBed) {
		core := b.server.Core(0)
		ended := make(chan error, 2)
		short, cancel := context.WithCancel(b.ctx)
		removed := make(chan error, 1)
		go func() { removed <- b.server.RemoveCore(short, 0) }()
		b.drains()
		core.Do(func(c *loop.Core) {
			s := blockStores.Of(c)
			op := &loop.FileOp{}
			op.Done = func(_ *loop.Core, op *loop.FileOp) { ended <- op.Err }
			m, err := control.LendMessage(c, 1, blockSize)
			if err != nil {
				t.Error(err)
			}
			if err := s.file.WriteAt(op, m.Data, 0, loop.Committed); err != nil {
				ended <- err
			}
		})
		if err := <-ended; err != nil {
			t.Errorf("a write on a core that is being removed: %v", err)
		}
		left := make(chan *loop.DetachedFile, 1)
		core.Do(func(c *loop.Core) {
			blockStores.Of(c).file.Detach(func(_ *loop.Core, d *loop.DetachedFile) { left <- d })
		})
		d := <-left
		if err := <-removed; err != nil {
			t.Errorf("removed: %v", err)
		}
		cancel()
		b.server.Core(1).Do(func(c *loop.Core) {
			f, err := c.AttachFile(d)
			if err == nil {
				op := &loop.FileOp{Done: func(_ *loop.Core, op *loop.FileOp) { ended <- op.Err }}
				err = f.ReadBuffer(op, blockSize, 0)
			}
			if err != nil {
				ended <- err
			}
		})
		if err := <-ended; err != nil {
			t.Errorf("read on the other core: %v", err)
		}
	})
}

// drains waits until core 0 is being removed.
func (b *blockBed) drains() {
	b.t.Helper()
	eventually(b.t, b.ctx, "the removal to begin", func() bool {
		st, err := b.server.Plane().Stats(0)
		return err == nil && st.State == "draining"
	})
}

func TestShutdownWithRequestsUnderWayLeavesNothingBehind(t *testing.T) {
	nodetest.CheckLeaks(t)
	mapped := drivertest.Mapped(t)
	overDisks(t, diskOptions{}, func(t *testing.T, b *blockBed) {
		const n = 64
		ended := make(chan error, 2*n)
		b.on(func(c *loop.Core, s *blockStore) {
			for i := range int64(n) {
				m, err := control.LendMessage(c, 1, blockSize)
				if err != nil {
					t.Error(err)
				}
				write := &loop.FileOp{Done: func(_ *loop.Core, op *loop.FileOp) { m.Release(); ended <- op.Err }}
				read := &loop.FileOp{Done: func(_ *loop.Core, op *loop.FileOp) {
					control.FileMessage(op, 1).Release()
					ended <- nil
				}}
				if err := errors.Join(s.file.WriteAt(write, m.Data, i*blockSize, loop.Committed), s.file.ReadBuffer(read, blockSize, 0)); err != nil {
					t.Error(err)
				}
			}
		})
		if err := b.server.Shutdown(b.ctx); err != nil {
			t.Error(err)
		}
		for range 2 * n { // each is told how it ended
			err := <-ended
			if err != nil && !errors.Is(err, loop.ErrStopped) && !errors.Is(err, loop.ErrFileClosed) {
				t.Errorf("ended with %v", err)
			}
		}
	})
	if n := drivertest.Settled(mapped, func() int { return drivertest.Mapped(t) }); n > mapped {
		t.Errorf("%d bytes mapped before, %d after", mapped, n)
	}
}
