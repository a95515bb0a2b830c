package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

// Where the echo of the server is.
const (
	echoService = "bench.Echo"
	streamPath  = "/" + echoService + "/Stream"
)

const (
	// grpcBuffer is the size of the buffers for reading and writing that gRPC-go's own
	// benchmark has on both sides (benchmark/worker); the default is 32 KiB.
	grpcBuffer = 128 << 10
	// grpcLargest admits the largest payload; the default ends at 4 MiB with the header.
	grpcLargest = 32 << 20
)

// grpcServer is an echo server of gRPC-go, without TLS.
//
// Messages are bytes: its codec hands on the buffers in which they came, which costs no
// copy. Flow control is its default, windows that follow the measured bandwidth: "most
// users should not configure static flow control windows". Requests are messages of one
// stream for each connection, which has its goroutine for as long as it lives.
type grpcServer struct {
	listener net.Listener
	server   *grpc.Server
	done     chan error
}

func newGRPC() (*grpcServer, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("grpc: %w", err)
	}
	g := &grpcServer{listener: l, done: make(chan error, 1), server: grpc.NewServer(
		grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(grpcLargest),
		grpc.ReadBufferSize(grpcBuffer), grpc.WriteBufferSize(grpcBuffer),
	)}
	g.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: echoService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Stream", Handler: echoStream, ServerStreams: true, ClientStreams: true}},
	}, nil)
	go func() { g.done <- g.server.Serve(l) }()
	return g, nil
}

// Addr returns where it listens.
func (g *grpcServer) Addr() net.Addr { return g.listener.Addr() }

// Settings says how it is used.
func (g *grpcServer) Settings() map[string]string {
	return map[string]string{
		"version": grpc.Version, "buffers": strconv.Itoa(grpcBuffer), "GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0)),
	}
}

// Close ends it and all connections.
func (g *grpcServer) Close() error {
	g.server.Stop()
	return <-g.done
}

// echoStream answers messages until the client has sent all.
func echoStream(_ any, s grpc.ServerStream) error {
	m := new(message)
	for {
		err := s.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.SendMsg(m)
		}
		if err != nil {
			return err
		}
	}
}

// message is a message of both sides. Its receiver owns a reference to its buffers; sending it
// gives the reference to gRPC.
type message struct{ data mem.BufferSlice }

// bytesCodec takes messages as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("no message: %T", v)
	}
	return m.data, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("no message: %T", v)
	}
	data.Ref() // gRPC gives up its own
	m.data = data
	return nil
}

func (bytesCodec) Name() string { return "bytes" }

const (
	// connectTimeout bounds the opening of one connection.
	connectTimeout = 10 * time.Second
	// turnEach is the interval at which the client reads its clock. A window is measured by its
	// real length.
	turnEach = time.Millisecond
)

// errNotConnected says that a connection could not be opened.
var errNotConnected = errors.New("not connected")

// grpcLoad is the client of a gRPC server: a ClientConn for each connection, and on each
// a stream with as many requests open as the load says. It keeps its accounts as load.Load does, and verifies as much.
type grpcLoad struct {
	opt     load.Options
	payload []byte
	conns   []*grpcConn
	active  []*grpcConn        // of this slice
	streams context.Context    // of all streams
	end     context.CancelFunc // ends them

	// mu protects the following. Run holds it except while it waits.
	mu        sync.Mutex
	meter     load.Meter
	cold      int // streams that have not answered all that was open
	running   int // streams
	lastReply time.Duration
	err       error         // the first one
	stop      chan struct{} // closed: no new requests
}

// grpcConn is one connection, with its stream once it was active.
type grpcConn struct {
	*grpc.ClientConn
	index  int
	stream *streamer
}

func openGRPC(ctx context.Context, o load.Options) (child.Load, error) {
	l := &grpcLoad{opt: o, payload: load.Payload(o.Size), meter: load.NewMeter(o.PID)}
	l.streams, l.end = context.WithCancel(context.Background())
	for i := range o.Conns {
		c, err := l.dial(ctx)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("connection %d to %s: %w", i, o.Addr, err)
		}
		l.conns = append(l.conns, &grpcConn{ClientConn: c, index: i})
	}
	runtime.GC() // the garbage of connecting, before the measurement
	return l, nil
}

func (l *grpcLoad) employ(c *grpcConn) error {
	s, err := c.NewStream(l.streams, &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}, streamPath)
	if err != nil {
		return fmt.Errorf("stream to %s: %w", l.opt.Addr, err)
	}
	c.stream = &streamer{l: l, stream: s, numbers: newNumbers(c.index)}
	return nil
}

// dial opens one connection, with the settings of the server. A request that fails is an error,
// and is not repeated.
func (l *grpcLoad) dial(ctx context.Context) (*grpc.ClientConn, error) {
	c, err := grpc.NewClient("passthrough:///"+l.opt.Addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(grpcBuffer), grpc.WithWriteBufferSize(grpcBuffer),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(grpcLargest), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c.Connect()
	for {
		switch s := c.GetState(); {
		case s == connectivity.Ready:
			return c, nil
		case s == connectivity.TransientFailure, s == connectivity.Shutdown, !c.WaitForStateChange(ctx, s):
			_ = c.Close()
			return nil, fmt.Errorf("%w: %v", errNotConnected, s)
		}
	}
}

// Close closes all connections.
func (l *grpcLoad) Close() {
	l.end()
	for _, c := range l.conns {
		_ = c.Close() // fails only if it is closed
	}
	l.conns = nil
}

// Run loads the server for one slice and waits until every request is answered.
func (l *grpcLoad) Run(s load.Slice) (load.Result, error) {
	var err error
	if l.active, err = load.Spread(s, l.conns); err != nil {
		return load.Result{}, err
	}
	for _, c := range l.active {
		if c.stream == nil {
			if err := l.employ(c); err != nil {
				return load.Result{}, err
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	res, err := l.meter.Run(s, l, uint64(len(l.active)*l.opt.Depth))
	res.PerReply = 1 // a message: HTTP/2 sends other bytes beside them
	return res, err
}

// Fill implements load.Traffic.
func (l *grpcLoad) Fill() error {
	l.stop, l.err = make(chan struct{}), nil
	l.cold, l.running, l.lastReply = len(l.active), len(l.active), l.meter.Now()
	for _, c := range l.active {
		stop := l.stop
		go func() { l.ended(c.stream.run(stop)) }()
	}
	return nil
}

// Turn implements load.Traffic.
func (l *grpcLoad) Turn() error {
	l.mu.Unlock()
	time.Sleep(turnEach)
	l.mu.Lock()
	if l.err == nil && l.meter.Now()-l.lastReply >= load.StallAfter {
		l.err = fmt.Errorf("%w: no reply for %v", load.ErrStalled, l.meter.Now()-l.lastReply)
	}
	return l.err
}

// Warm implements load.Traffic.
func (l *grpcLoad) Warm() bool { return l.cold == 0 }

// Stop implements load.Traffic.
func (l *grpcLoad) Stop() { close(l.stop) }

// Pending implements load.Traffic: a stream ends behind its last reply.
func (l *grpcLoad) Pending() int { return l.running }

func (l *grpcLoad) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if l.err == nil {
		l.err = err
	}
}

// answered counts a reply, the n-th of its stream in this slice.
func (l *grpcLoad) answered(now, issued time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meter.Answered(now - issued)
	l.meter.Received(1)
	l.lastReply = now
	if n == l.opt.Depth {
		l.cold--
	}
}

// streamer keeps the requests of a stream open.
type streamer struct {
	l      *grpcLoad
	stream grpc.ClientStream
	numbers
}

// run receives beside another goroutine that sends: a request that waits for the window
// of the stream must not hold up the replies that would open it.
func (s *streamer) run(stop <-chan struct{}) error {
	depth := s.l.opt.Depth
	due := make(chan time.Duration, depth) // when each request to be sent was issued
	for range depth {
		due <- s.l.meter.Now()
	}
	sent := make(chan time.Duration, depth) // of the open requests
	failed := make(chan error, 1)
	go func() {
		defer close(sent)
		failed <- s.send(due, sent, stop)
	}()
	n := 0
	for issued := range sent {
		var reply message
		if err := s.stream.RecvMsg(&reply); err != nil {
			return err
		}
		now := s.l.meter.Now()
		if err := s.check(&reply, s.l.payload); err != nil {
			return err
		}
		n++
		s.l.answered(now, issued, n)
		due <- now // has room: this one is no longer open
	}
	return <-failed
}

// send sends due requests, until stop closes: then it takes back requests that were not begun.
func (s *streamer) send(due <-chan time.Duration, sent chan<- time.Duration, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		select {
		case <-stop:
			return nil
		case issued := <-due:
			request := s.request(s.l.payload)
			if err := s.stream.SendMsg(&request); err != nil {
				return err
			}
			sent <- issued
		}
	}
}

// A request is a header, transaction id, size of the payload and a crc of both, and the
// payload, which all requests share. What the header of a msgr frame is to load.Load this
// one is here: it is checked in every reply, the bytes of the payload in those of the
// sample.
const (
	headerSize = 16
	headerSum  = 12 // where the crc is
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// numbers are the transaction ids of one worker: replies come in the order of the
// requests. Sending and receiving may be on two goroutines.
type numbers struct {
	asked uint64 // of the next request
	want  uint64 // of the next reply
}

// newNumbers makes the numbers of worker index.
func newNumbers(index int) numbers {
	first := uint64(index)<<40 + 1
	return numbers{first, first}
}

func (n *numbers) request(payload []byte) message {
	h := make([]byte, headerSize)
	binary.LittleEndian.PutUint64(h, n.asked)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[headerSum:], crc32.Checksum(h[:headerSum], castagnoli))
	n.asked++
	return message{mem.BufferSlice{mem.SliceBuffer(h), mem.SliceBuffer(payload)}}
}

// check verifies the next reply and gives its buffers back.
func (n *numbers) check(m *message, payload []byte) error {
	defer m.data.Free()
	tid := n.want
	n.want++
	if got, want := m.data.Len(), headerSize+len(payload); got != want {
		return fmt.Errorf("%w: %d bytes, want %d", load.ErrReply, got, want)
	}
	var h [headerSize]byte
	m.data.CopyTo(h[:])
	if crc32.Checksum(h[:headerSum], castagnoli) != binary.LittleEndian.Uint32(h[headerSum:]) {
		return fmt.Errorf("%w: header crc", load.ErrReply)
	}
	if got := binary.LittleEndian.Uint64(h[:]); got != tid {
		return fmt.Errorf("%w: transaction %#x, want %#x", load.ErrReply, got, tid)
	}
	if tid&load.SampleMask == 0 {
		return compare(m.data, payload)
	}
	return nil
}

func compare(data mem.BufferSlice, payload []byte) error {
	skip, off := headerSize, 0
	for _, b := range data {
		p := b.ReadOnlyData()
		k := min(skip, len(p))
		skip -= k
		p = p[k:]
		if !bytes.Equal(p, payload[off:off+len(p)]) {
			return fmt.Errorf("%w: bytes differ at %d or later", load.ErrReply, off)
		}
		off += len(p)
	}
	return nil
}
