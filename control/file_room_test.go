package control_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// A peer sends much more than the disk takes: what the server has of it stays at the bound
// of the file, and what came in the same read; the rest waits in the peer.
func TestASaturatedDiskDoesNotMakeTheMemoryGrow(t *testing.T) {
	const bound, count = 8, 2000
	most := 0 // the core's
	opt := diskOptions{file: loop.FileOptions{Ops: bound}, serve: func(c *control.Conn, m *control.Message) bool {
		s := blockStores.Of(c.Core())
		before := len(s.free)
		taken := serveBlocks(c, m)
		if before == 0 {
			most++ // one more is under way than ever before
		}
		return taken
	}}
	overDisks(t, opt, func(t *testing.T, b *blockBed) {
		most = 0
		list := numbers(count)
		for i := range list {
			list[i] %= 64
		}
		for _, a := range b.ask(writeBlock, list...) {
			if a.err != nil || a.failed != "" {
				t.Fatalf("%+v", a)
			}
		}
		b.on(func(_ *loop.Core, s *blockStore) {
			if s.file.Full() {
				t.Error("full without a request")
			}
			if most < bound || most > count/10 {
				t.Errorf("%d requests at once", most)
			}
		})
		if a := b.one(readBlock, 1); a.err != nil || a.failed != "" {
			t.Errorf("it reads no more: %+v", a)
		}
	})
}

const askHold = 1 // a request to be held

// onRoom is told of room.
type onRoom func(f *loop.File)

func (told onRoom) HasRoom(f *loop.File) { told(f) }

// HasRoom comes once, behind the request that was one too many; the connection goes on when
// the file is closed meanwhile, too.
func TestAFileTellsWhenItHasRoom(t *testing.T) {
	for _, closed := range []bool{false, true} {
		var held chan bool // of the bubble
		hold := func(c *control.Conn, m *control.Message) bool {
			if m.Type != askHold {
				return serveBlocks(c, m)
			}
			held <- c.Hold(blockStores.Of(c.Core()).file)
			return true
		}
		onPair(t, diskOptions{file: loop.FileOptions{Ops: 2}, serve: hold}, func(t *testing.T, b *blockBed, p *pair.Pair) {
			p.Do(func() { p.ServerHost.Disk().Configure(simnet.DiskOptions{Latency: time.Minute}) })
			var told []int // how many requests had ended; the core's
			var wg sync.WaitGroup
			b.on(func(_ *loop.Core, s *blockStore) {
				ended := 0
				s.file.AwaitRoom(onRoom(func(f *loop.File) {
					if f != s.file || f.Full() {
						t.Error("it is still full")
					}
					told = append(told, ended)
				}))
				for i := range 3 {
					wg.Add(1)
					op := &loop.FileOp{Done: func(*loop.Core, *loop.FileOp) { ended++; wg.Done() }}
					if err := s.file.Allocate(op, 0, blockSize); err != nil {
						t.Error(err)
					}
					if full := s.file.Full(); full != (i >= 1) {
						t.Errorf("full with %d requests: %v", i+1, full)
					}
				}
			})
			held = make(chan bool, 1)
			must(t, b.conn.Send(control.NewMessage(askHold, nil, nil)))
			if !awaited(t, b, held) {
				t.Error("a full file holds nobody")
			}
			if closed {
				b.on(func(_ *loop.Core, s *blockStore) { s.file.Close() })
			}
			wg.Wait()
			p.Settle()
			b.on(func(_ *loop.Core, s *blockStore) {
				if len(told) != 1 || told[0] != 2 {
					t.Errorf("closed %v: told behind %v", closed, told)
				}
			})
			if a := b.one(readBlock, 0); a.err != nil || (a.failed != "") != closed {
				t.Errorf("the connection does not go on: %+v", a)
			}
			must(t, b.conn.Send(control.NewMessage(askHold, nil, nil)))
			if awaited(t, b, held) {
				t.Error("a file with room holds somebody")
			}
		})
	}
}

// awaited is what comes.
func awaited[T any](t *testing.T, b *blockBed, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-b.ctx.Done():
		t.Fatal("it never comes")
	}
	return v
}
