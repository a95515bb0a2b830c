package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

const (
	// connectTimeout bounds the opening of one connection.
	connectTimeout = 10 * time.Second
	// turnEach is how often the client looks at its clock. A window is measured by its
	// real length.
	turnEach = time.Millisecond
)

// errNotConnected says that a connection could not be opened.
var errNotConnected = errors.New("not connected")

// grpcLoad is the client of a gRPC server: a ClientConn for each connection, and on each
// as many requests open as the load says, by as many goroutines that call, or by one
// stream. It keeps its accounts as load.Load does, and verifies as much.
type grpcLoad struct {
	opt     load.Options
	payload []byte
	conns   []*grpcConn
	stream  bool
	workers []worker           // of this slice
	answers int                // of each worker, until all its open requests were answered once
	streams context.Context    // of all streams
	end     context.CancelFunc // ends them

	// mu protects the following. Run holds it except while it waits.
	mu        sync.Mutex
	meter     load.Meter
	all       uint64 // bytes received in this slice
	cold      int    // workers that have not answered all that was open
	running   int    // workers
	lastReply time.Duration
	err       error         // the first one
	stop      chan struct{} // closed: no new requests
}

// worker keeps requests open during a slice, until stop closes.
type worker interface {
	run(stop <-chan struct{}) error
}

// grpcConn is one connection, with its workers once it was active.
type grpcConn struct {
	*grpc.ClientConn
	index   int
	workers []worker
}

// openGRPC connects.
func openGRPC(ctx context.Context, o load.Options, stream bool) (child.Load, error) {
	l := &grpcLoad{opt: o, payload: load.Payload(o.Size), meter: load.NewMeter(o.PID), stream: stream, answers: 1}
	if stream {
		l.answers = o.Depth
	}
	l.streams, l.end = context.WithCancel(context.Background())
	for i := range o.Conns {
		c, err := l.dial(ctx)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("connection %d to %s: %w", i, o.Addr, err)
		}
		l.conns = append(l.conns, &grpcConn{ClientConn: c, index: i})
	}
	runtime.GC() // what connecting left behind, before anything is measured
	return l, nil
}

// employ makes the workers of a connection: one that has a stream, or one for each call
// that is open.
func (l *grpcLoad) employ(c *grpcConn) error {
	if !l.stream {
		for i := range l.opt.Depth {
			c.workers = append(c.workers, newCaller(l, c.ClientConn, c.index*l.opt.Depth+i))
		}
		return nil
	}
	s, err := c.NewStream(l.streams, &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}, streamPath)
	if err != nil {
		return fmt.Errorf("stream to %s: %w", l.opt.Addr, err)
	}
	c.workers = []worker{newStreamer(l, s, c.index)}
	return nil
}

// dial opens one connection, with the settings of the server. Nothing is retried: a
// request that fails is an error here.
func (l *grpcLoad) dial(ctx context.Context) (*grpc.ClientConn, error) {
	c, err := grpc.NewClient("passthrough:///"+l.opt.Addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.connect),
		grpc.WithReadBufferSize(grpcBuffer), grpc.WithWriteBufferSize(grpcBuffer),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(grpcLargest), grpc.MaxCallSendMsgSize(math.MaxInt32)),
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

// connect opens a connection whose bytes are counted.
func (l *grpcLoad) connect(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{c.(*net.TCPConn), l}, nil
}

// countedConn tells the load what it receives.
type countedConn struct {
	*net.TCPConn
	l *grpcLoad
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.l.mu.Lock()
	c.l.meter.Received(n)
	c.l.all += uint64(n)
	c.l.mu.Unlock()
	return n, err
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
	active, err := load.Spread(s, l.conns)
	if err != nil {
		return load.Result{}, err
	}
	if err := l.choose(active); err != nil {
		return load.Result{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = 0
	res, err := l.meter.Run(s, l, uint64(len(active)*l.opt.Depth))
	if err != nil || l.all == 0 {
		return res, err
	}
	// The size of a reply on the wire differs with what HTTP/2 sends beside it: its part
	// of the window is that of the bytes of the whole slice, which are Total replies.
	res.PerReply = l.opt.Size + headerSize
	res.Bytes = uint64(float64(res.Bytes) / float64(l.all) * float64(res.Total) * float64(res.PerReply))
	return res, nil
}

// choose has the workers of some connections be those of the next slice.
func (l *grpcLoad) choose(active []*grpcConn) error {
	l.workers = l.workers[:0]
	for _, c := range active {
		if c.workers == nil {
			if err := l.employ(c); err != nil {
				return err
			}
		}
		l.workers = append(l.workers, c.workers...)
	}
	return nil
}

// Fill implements load.Traffic.
func (l *grpcLoad) Fill() error {
	l.stop, l.err = make(chan struct{}), nil
	l.cold, l.running, l.lastReply = len(l.workers), len(l.workers), l.meter.Now()
	for _, w := range l.workers {
		stop := l.stop
		go func() { l.ended(w.run(stop)) }()
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

// Drain implements load.Traffic.
func (l *grpcLoad) Drain() error {
	close(l.stop)
	for l.running > 0 {
		if err := l.Turn(); err != nil {
			return err
		}
	}
	return l.err
}

// ended keeps what a worker ended with.
func (l *grpcLoad) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if l.err == nil {
		l.err = err
	}
}

// now reads the clock of the accounts, which nothing changes.
func (l *grpcLoad) now() time.Duration { return l.meter.Now() }

// answered counts a reply, the n-th of its worker in this slice.
func (l *grpcLoad) answered(now, issued time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meter.Answered(now - issued)
	l.lastReply = now
	if n == l.answers {
		l.cold--
	}
}
