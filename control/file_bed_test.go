package control_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
)

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
	t.Run("simulated", func(t *testing.T) { onSimulatedDisk(t, opt, f) })
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
	client := startMessenger(t, oneCore(t, "client.admin", backend))
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

func onSimulatedDisk(t *testing.T, opt diskOptions, f func(t *testing.T, b *blockBed)) {
	onPair(t, opt, func(t *testing.T, b *blockBed, _ *pair.Pair) { f(t, b) })
}

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
