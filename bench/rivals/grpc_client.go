package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// openGRPC connects.
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

// employ makes the stream of a connection.
func (l *grpcLoad) employ(c *grpcConn) error {
	s, err := c.NewStream(l.streams, &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}, streamPath)
	if err != nil {
		return fmt.Errorf("stream to %s: %w", l.opt.Addr, err)
	}
	c.stream = newStreamer(l, s, c.index)
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

// ended keeps the error of a stream.
func (l *grpcLoad) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if l.err == nil {
		l.err = err
	}
}

// now reads the clock of the accounts, which does not change.
func (l *grpcLoad) now() time.Duration { return l.meter.Now() }

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
