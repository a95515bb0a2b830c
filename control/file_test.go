package control_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
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

// A connection that a full file holds goes on when the file has room, or is closed meanwhile.
func TestAFullFileHoldsAConnectionUntilItHasRoom(t *testing.T) {
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
			held = make(chan bool, 1)
			asks := func() bool {
				t.Helper()
				must(t, b.conn.Send(control.NewMessage(askHold, nil, nil)))
				return arrives(t, "what Hold says", held)
			}
			var wg sync.WaitGroup
			b.on(func(_ *loop.Core, s *blockStore) {
				for range 3 {
					wg.Add(1)
					check(t, s.file.Allocate(&loop.FileOp{Done: func(*loop.Core, *loop.FileOp) { wg.Done() }}, 0, blockSize))
				}
			})
			if !asks() {
				t.Error("a full file holds nobody")
			}
			if closed {
				b.on(func(_ *loop.Core, s *blockStore) { s.file.Close() })
			}
			wg.Wait()
			p.Settle()
			if a := b.one(readBlock, 0); a.err != nil || (a.failed != "") != closed {
				t.Errorf("the connection does not go on: %+v", a)
			}
			if asks() {
				t.Error("a file with room holds somebody")
			}
		})
	}
}

// replySide is what a server has seen of requests, and its client of replies.
type replySide struct {
	policy     control.Policy
	dispatched int           // the core's
	conn       *control.Conn // of the last one; the core's
	replies    atomic.Int64  // that no call has waited for
}

// overReplyPolicies runs f with a server that has memory for so many blocks.
func overReplyPolicies(t *testing.T, blocks int64, f func(t *testing.T, b *blockBed, p *pair.Pair, s *replySide)) {
	for _, policies := range [][2]control.Policy{
		{control.StatelessServer(), control.LossyClient()},
		{control.StatefulServer(), control.LosslessClient()},
	} {
		t.Run(policies[0].Name, func(t *testing.T) {
			side := &replySide{policy: policies[0]}
			opt := diskOptions{bytes: blocks * blockSize, queue: 1, server: &policies[0], client: &policies[1], serve: func(c *control.Conn, m *control.Message) bool {
				side.dispatched++
				side.conn = c
				return serveBlocks(c, m)
			}, receive: &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				if m.Type == blockDone {
					side.replies.Add(1)
				}
				return true
			}}}
			onPair(t, opt, func(t *testing.T, b *blockBed, p *pair.Pair) { f(t, b, p, side) })
		})
	}
}

// deaf has a connection ask for blocks and read nothing: one beside that of b, if the server
// lets its client have several.
func deaf(t *testing.T, b *blockBed, p *pair.Pair, server control.Policy, asks int) *control.Conn {
	t.Helper()
	conn := b.conn
	if server.Lossy {
		conn = connect(t, p.Client, p.Addr, wire.OSD, control.Anonymous())
		must(t, conn.WaitReady(b.ctx))
	}
	conn.Pause()
	p.Pass(time.Second)
	for range asks {
		must(t, conn.Send(control.NewMessage(readBlock, binary.LittleEndian.AppendUint32(nil, 1), nil)))
	}
	p.Pass(time.Second)
	return conn
}

// Its replies take no more than their part, and others get theirs. On a lossy connection what
// it asks for next waits in its socket; on a lossless one it is read, as acks come that way. The
// end of the session gives everything back, and what waits is not read from the file any more.
// Matrix: ST-15
func TestAPeerThatTakesNoRepliesHoldsItsPartOfTheMemoryForReads(t *testing.T) {
	const blocks, asks = 48, 5000
	overReplyPolicies(t, blocks, func(t *testing.T, b *blockBed, p *pair.Pair, side *replySide) {
		b.one(writeBlock, 1)
		conn := deaf(t, b, p, side.policy, asks)
		st := b.files().Files
		if st.Held < blocks*blockSize/8 || st.Held > blocks*blockSize/4 || st.Waiting == 0 {
			t.Errorf("%d bytes are held, %d requests wait", st.Held, st.Waiting)
		}
		b.on(func(_ *loop.Core, s *blockStore) {
			for _, r := range s.free {
				if r.For != nil || r.Keeps != nil {
					t.Error("the next request is for the same connection")
				}
			}
			if all := side.dispatched == asks+1; all == side.policy.Lossy {
				t.Errorf("%d of %d requests are dispatched", side.dispatched-1, asks)
			}
		})
		if side.policy.Lossy { // b has another connection
			for range 5 {
				if a := b.one(readBlock, 1); a.err != nil || a.failed != "" {
					t.Fatalf("%v %q", a.err, a.failed)
				}
			}
		}
		before := b.files().Files
		conn.MarkDown()
		if !side.policy.Lossy {
			side.conn.MarkDown() // the server would wait for its peer
		}
		p.Pass(time.Second)
		st = b.files().Files
		if st.Held != 0 || st.Ops != 0 {
			t.Errorf("%d bytes are held behind its end, %d requests wait", st.Held, st.Ops)
		}
		if n := st.Reads - before.Reads; n > blocks {
			t.Errorf("of %d requests that waited at its end %d were done", before.Waiting, n)
		}
	})
}

// Who reads late gets every reply, whatever the bound of the sending queue, which other
// messages do not pass.
// Matrix: ST-15, TH-10
func TestEveryReplyComesHoweverLateItsPeerReads(t *testing.T) {
	const asks = 3000
	overReplyPolicies(t, 48, func(t *testing.T, b *blockBed, p *pair.Pair, side *replySide) {
		b.one(writeBlock, 1)
		conn := deaf(t, b, p, side.policy, asks)
		b.on(func(c *loop.Core, _ *blockStore) {
			var refused error
			for range 2 { // one of them may be the only one that counts
				m, err := control.LendMessage(c, blockFailed, 0)
				must(t, err)
				m.Front = []byte("no reply")
				if refused = side.conn.Send(m); refused != nil {
					m.Release()
				}
			}
			if !errors.Is(refused, control.ErrQueueFull) {
				t.Errorf("beyond the bound of the queue: %v", refused)
			}
		})
		conn.Resume()
		p.Pass(time.Minute)
		if st := b.files().Files; st.Ops != 0 || st.Held != 0 || side.replies.Load() != asks {
			t.Errorf("%d of %d replies have come: %+v", side.replies.Load(), asks, st)
		}
		if st, err := b.server.Stats(); err != nil || st.InFlight != 0 {
			t.Errorf("%d bytes of requests are kept, %v", st.InFlight, err)
		}
	})
}

// Reads that wait for memory when a hand-over begins are done if all of the memory has room for them, and fail
// else: their calls have an answer of the predecessor.
func TestReadsThatWaitForMemoryAreAnsweredBeforeAHandOver(t *testing.T) {
	const blocks = 48
	for _, asks := range []int{2 * blocks / 3, 2 * blocks} {
		var read, failed atomic.Int64
		policy, client := control.StatefulServer(), control.LosslessClient()
		b := newBlockBed(t, uring.Auto, diskOptions{
			bytes: blocks * blockSize, server: &policy, client: &client,
			receive: &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				map[uint16]*atomic.Int64{blockDone: &read, blockFailed: &failed}[m.Type].Add(1)
				return true
			}},
		})
		b.one(writeBlock, 1)
		b.conn.Pause()
		must(t, onlyError(b.conn.Stats())) // it reads nothing from here on
		for range asks {
			must(t, b.conn.Send(control.NewMessage(readBlock, binary.LittleEndian.AppendUint32(nil, 1), nil)))
		}
		eventually(t, b.ctx, "reads that wait", func() bool { return b.files().Files.Waiting >= int64(asks-blocks/4) })
		cfg := control.Config{Name: b.server.Name(), Default: &policy}
		defer end(t, succeed(t, b.ctx, b.server, cfg))
		b.conn.Resume()
		eventually(t, b.ctx, "every answer", func() bool { return read.Load()+failed.Load() == int64(asks) })
		if n := failed.Load(); (n > 0) != (asks > blocks) || n > int64(asks-blocks/2) {
			t.Errorf("of %d reads %d fail", asks, n)
		}
	}
}

// Peers that read nothing hold all of the memory. Who reads waits for no more than the time in
// which the first of them has to take its reply, and then for nothing.
// Matrix: ST-15
func TestPeersThatFillTheMemoryForReadsAndReadNothingAreEnded(t *testing.T) {
	const blocks, hostile = 48, 60
	policy, client := control.StatelessServer(), control.LossyClient()
	opt := diskOptions{bytes: blocks * blockSize, server: &policy, client: &client}
	onPair(t, opt, func(t *testing.T, b *blockBed, p *pair.Pair) {
		b.one(writeBlock, 1)
		var conns []*control.Conn
		for range hostile {
			conns = append(conns, deaf(t, b, p, policy, 400))
		}
		if st := b.files().Files; st.Held < (blocks-4)*blockSize {
			t.Fatalf("%d bytes are held, %d requests wait", st.Held, st.Waiting)
		}
		for i := range 20 {
			since := time.Now()
			if a := b.one(readBlock, 1); a.err != nil || a.failed != "" {
				t.Fatalf("%v %q", a.err, a.failed)
			}
			if took := time.Since(since); took > 3*time.Second {
				t.Errorf("read %d takes %v", i, took)
			}
		}
		st := b.files()
		if st.TooSlow == 0 || st.TooSlow > hostile {
			t.Errorf("%d connections have ended", st.TooSlow)
		}
		for _, c := range conns {
			c.MarkDown()
		}
		p.Pass(time.Second)
		if st := b.files().Files; st.Held != 0 || st.Ops != 0 {
			t.Errorf("%d bytes are held behind their end, %d requests wait", st.Held, st.Ops)
		}
	})
}

// blockBed is the block server of the example with a client, on one disk.
type blockBed struct {
	t      *testing.T
	ctx    context.Context
	server *control.Messenger
	conn   *control.Conn
}

// diskOptions are those of the tests: everything that a user can choose has its effect.
type diskOptions struct {
	file           loop.FileOptions
	cores          int
	serve          func(c *control.Conn, m *control.Message) bool
	bytes          int64               // loop.Config.FileBytes
	queue          int64               // Sending.QueueBytes of the server
	receive        *control.Dispatcher // of the client; nil: none
	server, client *control.Policy     // nil: the default
}

// overDisks runs f over each engine with the machine's disk, and over the simulated one.
func overDisks(t *testing.T, opt diskOptions, f func(t *testing.T, b *blockBed)) {
	overRealDisks(t, opt, f)
	t.Run("simulated", func(t *testing.T) {
		onPair(t, opt, func(t *testing.T, b *blockBed, _ *pair.Pair) { f(t, b) })
	})
}

func overRealDisks(t *testing.T, opt diskOptions, f func(t *testing.T, b *blockBed)) {
	for _, backend := range engines {
		for name, direct := range map[string]uring.DirectMode{"direct": uring.TryDirect, "buffered": uring.Buffered} {
			t.Run(string(backend)+"/"+name, func(t *testing.T) {
				opt := opt
				opt.file.Direct = direct
				f(t, newBlockBed(t, backend, opt))
			})
		}
	}
}

func newBlockBed(t *testing.T, backend uring.Backend, opt diskOptions) *blockBed {
	b := &blockBed{t: t, ctx: deadline(t)}
	server := newMessenger(t, control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Receiving: control.Receiving{AlignFrom: blockSize},
		Plane:   loop.Config{Cores: max(1, opt.cores), Driver: uring.Config{Backend: backend}, FileBytes: opt.bytes},
		Default: opt.server,
	})
	b.server = server
	b.open(t.TempDir()+"/blocks", opt.file)
	must(t, server.Start(&control.Dispatcher{Fast: opt.handler()}))
	addrs := bind(t, server, wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	cfg := oneCore(t, "client.admin", backend)
	cfg.Default = opt.client
	client := startMessenger(t, cfg, cmp.Or(opt.receive, new(control.Dispatcher)))
	b.conn = connect(t, client, addrs[0], wire.OSD)
	must(t, b.conn.WaitReady(b.ctx))
	return b
}

func (o diskOptions) handler() func(c *control.Conn, m *control.Message) bool {
	if o.serve != nil {
		return o.serve
	}
	return serveBlocks
}

// simulatedDisk is slow enough to be seen.
var simulatedDisk = simnet.DiskOptions{Latency: diskLatency}

func onPair(t *testing.T, opt diskOptions, f func(t *testing.T, b *blockBed, p *pair.Pair)) {
	cfg := pair.Config{Serve: &control.Dispatcher{Fast: opt.handler()}}
	cfg.Server.Receiving.AlignFrom, cfg.Server.Plane.Cores, cfg.Server.Plane.FileBytes = blockSize, opt.cores, opt.bytes
	cfg.Server.Sending.QueueBytes, cfg.Receive = opt.queue, opt.receive
	cfg.Server.Default, cfg.Client.Default = opt.server, opt.client
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		b := &blockBed{t: t, ctx: p.Context, server: p.Server, conn: p.Conn}
		p.Do(func() { p.ServerHost.Disk().Configure(simulatedDisk) })
		b.open("/blocks", opt.file)
		f(t, b, p)
	})
}

// on runs f on core 0 of the server, and waits for it.
func (b *blockBed) on(f func(c *loop.Core, s *blockStore)) {
	b.t.Helper()
	done := make(chan struct{})
	b.server.Core(0).Do(func(c *loop.Core) { f(c, blockStores.Of(c)); close(done) })
	select {
	case <-done:
	case <-b.ctx.Done():
		b.t.Fatal("the core does nothing")
	}
}

// open opens the file of core 0, off the core.
func (b *blockBed) open(path string, opt loop.FileOptions) {
	b.t.Helper()
	opened := make(chan error, 1)
	opt.Write, opt.Create = true, true
	b.on(func(c *loop.Core, s *blockStore) {
		c.OpenFile(path, opt, func(at *loop.Core, f *loop.File, err error) {
			if at != c {
				b.t.Error("opened on another core")
			}
			s.file = f
			opened <- err
		})
	})
	must(b.t, <-opened)
}

// blockAnswer is what came of a request.
type blockAnswer struct {
	number uint32
	failed string // empty: not
	data   []byte
	err    error // of the call
}

// ask makes requests at the same time, and returns what came of them.
func (b *blockBed) ask(typ uint16, numbers ...uint32) []blockAnswer {
	b.t.Helper()
	answers := make(chan blockAnswer, len(numbers))
	for _, n := range numbers {
		go func() { answers <- b.one(typ, n) }()
	}
	var list []blockAnswer
	for range numbers {
		list = append(list, <-answers)
	}
	return list
}

func (b *blockBed) one(typ uint16, n uint32) blockAnswer {
	var data []byte
	if typ == writeBlock {
		data = blockOf(n)
	}
	a := blockAnswer{number: n}
	m, err := b.conn.Call(b.ctx, control.NewMessage(typ, binary.LittleEndian.AppendUint32(nil, n), data))
	if a.err = err; err != nil {
		return a
	}
	defer m.Release()
	if m.Type == blockFailed {
		a.failed = string(m.Front)
	}
	a.data = append(a.data, m.Data...)
	return a
}

// blockOf is what is written as block n.
func blockOf(n uint32) []byte {
	p := make([]byte, blockSize)
	for i := range p {
		p[i] = byte(n + uint32(i)*uint32(i)>>8)
	}
	return p
}

// files are the counts of core 0.
func (b *blockBed) files() dataplane.CoreStats {
	b.t.Helper()
	st, err := dataplane.StatsOf(b.server.Core(0))
	must(b.t, err)
	return st
}
