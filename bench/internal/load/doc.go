// Package load is the client of the benchmark: one locked thread, one epoll
// loop, any number of connections that each keep a fixed number of requests
// open. It is the same program for every server, so that differences between
// two results come from the servers.
//
// A request is a msgr2.1 MESSAGE frame in crc mode with everything in its data
// segment, on a session of a lossy client; or, for a raw server, the same
// number of bytes without any meaning. The reply is the same frame back. Its
// header (crc, sequence, transaction id) and its epilogue are checked for every
// reply, the payload bytes of a sample.
//
// A Load belongs to one goroutine.
package load
