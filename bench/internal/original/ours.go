package original

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/server"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	openTimeout  = 10 * time.Second
	closeTimeout = 5 * time.Second
	turnEach     = 5 * time.Millisecond // interval at which the clock is read
	usualGC      = 100                  // percent, as it is for everybody; clients of the benchmark have more
)

// plane is one core of a backend.
func plane(backend string) loop.Config {
	return loop.Config{Cores: 1, Driver: uring.Config{Backend: uring.Backend(backend)}}
}

// nameless is method none for their client, whose payload is empty: it authenticates every
// client. It is for a server of the benchmark alone, on the loopback address.
type nameless struct{ *none.Server }

// Start implements auth.Server.
func (n nameless) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return n, nil
}

// Handle implements auth.ServerExchange.
func (nameless) Handle(context.Context, []byte) ([]byte, *auth.Result, error) {
	return nil, &auth.Result{Entity: wire.EntityName{Type: wire.Client, ID: "0"}, Mode: auth.CRC, Method: auth.None}, nil
}

func startServer(backend string, msgr1 bool) (*server.Messenger, error) {
	return server.StartMessenger(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Nonce: new(uint32), // in msgr1 their client compares addresses
		Auth: control.Auth{Server: nameless{none.NewServer(none.ServerConfig{})}}, Plane: plane(backend),
	}, msgr1, answer)
}

// answer answers a request on the core that received it (control.Dispatcher.Fast). Another
// message ends the connection.
func answer(c *control.Conn, op *control.Message) bool {
	reply, err := control.LendMessage(c.Core(), typeOpReply, replyMax)
	if err == nil {
		if err = putReply(reply, op); err == nil {
			err = c.Send(reply)
		}
		if err != nil {
			reply.Release()
		}
	}
	if err != nil {
		c.MarkDown()
	}
	return true
}

// client is a load.Load on the messenger: one core with all connections, each of which has
// as many requests open as theirs. The core issues a request for each answer.
type client struct {
	m        *control.Messenger
	conns    []*control.Conn
	front    []byte
	data     []byte
	crc      uint32 // of data, which theirs computes once, too
	inFlight int    // on each connection
	meter    load.Meter

	answered atomic.Uint64         // since the client began
	open     atomic.Int64          // requests without an answer
	stopping atomic.Bool           // no new requests
	failed   atomic.Pointer[error] // the first one

	began, seen uint64        // answers before this slice, and answers that the meter has counted
	lastAnswer  time.Duration // when the meter heard of one
}

func openClient(ctx context.Context, backend string, o load.Options) (*client, error) {
	debug.SetGCPercent(usualGC)
	at, err := netip.ParseAddrPort(o.Addr)
	if err != nil {
		return nil, err
	}
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "0"}, Plane: plane(backend)})
	if err != nil {
		return nil, err
	}
	c := &client{m: m, data: load.Payload(o.Size), inFlight: inFlight(o.Depth), meter: load.NewMeter(o.PID)}
	op := newOp(c.data)
	c.front, c.crc = op.Front, op.DataCRC()
	to := wire.Addr{Type: wire.AddrMsgr2, Nonce: o.Nonce, AddrPort: at}
	if o.Msgr1 {
		to.Type = wire.AddrLegacy
	}
	if err := c.connect(ctx, to, o.Conns); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", o.Addr, err)
	}
	return c, nil
}

func (c *client) connect(ctx context.Context, to wire.Addr, conns int) error {
	err := c.m.Start(&control.Dispatcher{Fast: c.answer, Reset: func(*control.Conn, bool) { c.fail(load.ErrStalled) }})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for range conns {
		conn, err := c.m.Connect(to, wire.OSD, control.Anonymous())
		if err == nil {
			err = conn.WaitReady(ctx)
		}
		if err != nil {
			return err
		}
		c.conns = append(c.conns, conn)
	}
	return nil
}

func (c *client) fail(err error) { c.failed.CompareAndSwap(nil, &err) }

// answer counts an answer, and sends the next request (Dispatcher.Fast).
func (c *client) answer(conn *control.Conn, m *control.Message) bool {
	if m.Type != typeOpReply {
		c.fail(fmt.Errorf("%w: message of type %d in place of MOSDOpReply", errMessage, m.Type))
		return true
	}
	c.answered.Add(1)
	c.open.Add(-1)
	if !c.stopping.Load() {
		next, _ := control.LendMessage(conn.Core(), typeOp, 0) // without data of its own it does not fail
		c.request(conn, next)
	}
	return true
}

func (c *client) request(conn *control.Conn, m *control.Message) {
	m.Front, m.Data, m.Version, m.CompatVersion = c.front, c.data, opVersion, opCompat
	m.SetDataCRC(c.crc)
	c.open.Add(1)
	if err := conn.Send(m); err != nil {
		m.Release()
		c.fail(err)
	}
}

// Run implements child.Load.
func (c *client) Run(s load.Slice) (load.Result, error) {
	c.began = c.answered.Load()
	c.seen = c.began
	res, err := c.meter.Run(s, c, 0)
	res.PerReply, res.Total = 1, c.answered.Load()-c.began
	return res, err
}

// Fill implements load.Traffic.
func (c *client) Fill() error {
	c.stopping.Store(false)
	c.lastAnswer = c.meter.Now()
	for _, conn := range c.conns {
		for range c.inFlight {
			c.request(conn, control.NewMessage(typeOp, nil, nil))
		}
	}
	return nil
}

// Turn implements load.Traffic: the core does the work.
func (c *client) Turn() error {
	time.Sleep(turnEach)
	if err := c.failed.Load(); err != nil {
		return *err
	}
	now, n := c.meter.Now(), c.answered.Load()
	if n > c.seen {
		c.lastAnswer = now
	} else if now-c.lastAnswer > load.StallAfter {
		return load.ErrStalled
	}
	c.meter.Received(int(n - c.seen))
	c.seen = n
	return nil
}

// Warm implements load.Traffic.
func (c *client) Warm() bool { return c.seen-c.began >= uint64(len(c.conns)*c.inFlight) }

// Stop implements load.Traffic.
func (c *client) Stop() { c.stopping.Store(true) }

// Pending implements load.Traffic.
func (c *client) Pending() int { return int(c.open.Load()) }

// Close implements child.Load.
func (c *client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.m.Shutdown(ctx) // the process ends with it
}

// The types of the messages.
const (
	typeOp      = 42 // MOSDOp
	typeOpReply = 43 // MOSDOpReply
)

const (
	opVersion = 8
	opCompat  = 3
	opWrite   = 0x2201
	groupSize = 17 // of a placement group
	replyMax  = 128
)

// errMessage is the error of an unexpected message.
var errMessage = errors.New("unexpected message")

var le = binary.LittleEndian

// newOp makes an MOSDOp that writes data to an object.
func newOp(data []byte) *control.Message {
	b := make([]byte, 0, 256)
	b, mark := wire.BeginEnvelope(b, 1, 1)
	b = append(b, 1)
	b = append(b, make([]byte, 12)...) // pool and seed
	b = le.AppendUint32(b, ^uint32(0)) // preferred OSD: none
	b = append(b, 0xff)                // shard: none
	b = wire.EndEnvelope(b, mark)
	b = append(b, make([]byte, 12)...) // hash, epoch, flags
	b, mark = wire.BeginEnvelope(b, 2, 2)
	b = append(b, make([]byte, 21)...) // request id: that of the message
	b = wire.EndEnvelope(b, mark)
	b = append(b, make([]byte, 24+4+8)...) // trace, incarnation, time
	b, mark = wire.BeginEnvelope(b, 6, 3)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, ^uint32(0))
	b = append(b, make([]byte, 8)...) // no locator, no namespace
	b = le.AppendUint64(b, ^uint64(0))
	b = wire.EndEnvelope(b, mark)
	b = wire.AppendString(b, "object")
	b = le.AppendUint16(b, 1)
	b = le.AppendUint16(b, opWrite)
	b = append(b, make([]byte, 4+8)...) // flags, offset
	b = le.AppendUint64(b, uint64(len(data)))
	b = append(b, make([]byte, 12)...) // no truncation
	b = le.AppendUint32(b, uint32(len(data)))
	b = le.AppendUint64(b, ^uint64(1))    // newest version of the object
	b = append(b, make([]byte, 8+4+4)...) // no snapshots, first attempt
	b = le.AppendUint64(b, uint64(wire.FeaturesPacific))
	m := control.NewMessage(typeOp, b, data)
	m.Version, m.CompatVersion = opVersion, opCompat
	return m
}

// putReply makes reply, which has replyMax bytes, the MOSDOpReply that their server sends:
// about the placement group of the request, and no operation.
func putReply(reply, op *control.Message) error {
	if op.Type != typeOp {
		return fmt.Errorf("%w: message of type %d in place of MOSDOp", errMessage, op.Type)
	}
	b := reply.Data[:4]
	clear(reply.Data) // no name, and all other fields zero:
	r := wire.NewReader(op.Front)
	r.Envelope(1, func(_ uint8, r *wire.Reader) { b = append(b, r.Bytes(groupSize)...) })
	r.U32() // hash
	epoch, flags := r.U32(), r.U32()
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: MOSDOp: %w", errMessage, err)
	}
	b = le.AppendUint64(b, uint64(flags))
	b = b[:len(b)+4+12] // result, version
	b = le.AppendUint32(b, epoch)
	b = b[:len(b)+4]                   // no operations
	b = le.AppendUint32(b, ^uint32(0)) // attempt: not known
	b = b[:len(b)+12+8+1+24]           // versions, no redirect, trace
	reply.Front, reply.Data = b, nil
	reply.TID, reply.Version, reply.CompatVersion = op.TID, 8, 2
	return nil
}
