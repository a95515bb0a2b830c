// Command rivals has servers of other libraries that a program could use for requests
// and responses, for the benchmark to compare: cloudwego/netpoll with the frames of
// msgr2, and gRPC-go with bytes in place of protobuf, by calls and by streams.
//
//	go run ./bench --rivals
//	go run ./bench --servers net,io_uring,netpoll,grpc,grpc+stream
//
// The benchmark builds and starts it, and speaks to it as to its own servers (package child).
// It is a module of its own, so that the measured module does not depend on these libraries.
// Each server has the settings that its own documents recommend for speed, each with its
// reason.
package main
