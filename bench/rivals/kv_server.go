package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
)

// Where the key-value service is. A request is the length of the key, 16 bits, the key,
// and in a put the value; the answer is the value, or nothing.
const (
	kvService = "bench.KV"
	putMethod = "/" + kvService + "/Put"
	getMethod = "/" + kvService + "/Get"
)

// engine is a store. Any goroutine may use it.
type engine interface {
	// put returns when the value is durable.
	put(key, value []byte) error
	// get calls found with the value, which is good until that returns, if there is one.
	get(key []byte, found func(value []byte)) error
	// settings say how it is used.
	settings() map[string]string
	close() error
}

// kvServer is an engine behind unary calls of gRPC.
type kvServer struct {
	*grpcServer
	engine engine
}

// startKV starts a key-value rival on a directory.
func startKV(name, dir string) (child.Server, error) {
	var e engine
	var err error
	switch name {
	case "bbolt":
		e, err = openBolt(dir)
	case "pebble":
		e, err = openPebble(dir)
	default:
		return nil, errNoSuch
	}
	if err != nil {
		return nil, err
	}
	s := &kvServer{engine: e}
	s.grpcServer, err = serveGRPC(unary, &grpc.ServiceDesc{
		ServiceName: kvService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Put", Handler: putCall}, {MethodName: "Get", Handler: getCall}},
	}, s)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return s, nil
}

// Settings says how both are used.
func (s *kvServer) Settings() map[string]string {
	all := s.engine.settings()
	for name, value := range s.grpcServer.Settings() {
		if name == "version" {
			name = "gRPC"
		}
		all[name] = value
	}
	return all
}

// Close ends it and all connections.
func (s *kvServer) Close() error { return errors.Join(s.grpcServer.Close(), s.engine.close()) }

// kvRequest is a call as it came.
type kvRequest struct {
	buffer     mem.Buffer
	key, value []byte // in it
}

var errRequest = status.Error(codes.InvalidArgument, "a request is its key's length, key and value")

// readRequest takes one; its buffer is to be given back.
func readRequest(decode func(any) error) (r kvRequest, err error) {
	m := new(message)
	if err := decode(m); err != nil {
		return r, err
	}
	r.buffer = m.data.MaterializeToBuffer(mem.DefaultBufferPool())
	m.data.Free()
	p := r.buffer.ReadOnlyData()
	if len(p) < 2 || len(p) < 2+int(binary.LittleEndian.Uint16(p)) {
		r.buffer.Free()
		return r, errRequest
	}
	n := 2 + int(binary.LittleEndian.Uint16(p))
	r.key, r.value = p[2:n], p[n:]
	return r, nil
}

// putCall answers when the value is durable.
func putCall(s any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	r, err := readRequest(decode)
	if err != nil {
		return nil, err
	}
	defer r.buffer.Free()
	if err := s.(*kvServer).engine.put(r.key, r.value); err != nil {
		return nil, fmt.Errorf("put: %w", err)
	}
	return new(message), nil
}

// getCall answers with the value, which it copies once.
func getCall(s any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	r, err := readRequest(decode)
	if err != nil {
		return nil, err
	}
	defer r.buffer.Free()
	m := new(message)
	err = s.(*kvServer).engine.get(r.key, func(value []byte) {
		m.data = mem.BufferSlice{mem.Copy(value, mem.DefaultBufferPool())}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get: %w", err)
	case m.data == nil:
		return nil, status.Error(codes.NotFound, "there is no such key")
	}
	return m, nil
}
