package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
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

// newGRPC starts one.
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
