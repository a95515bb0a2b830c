// Package wire encodes and decodes the values that the control plane puts into
// messenger frames: entity names, addresses, the banner, and the payload of every
// control frame of protocol version 2, but for acks and keepalives, which are package
// dataplane's.
//
// It knows bytes and nothing else. It never does I/O, keeps no state between calls
// and starts no goroutine, so everything in it is safe for concurrent use as long as
// the same value is not written by two goroutines at once.
//
// Every payload type has a method
//
//	AppendTo(dst []byte) []byte
//
// that appends its encoding to dst and returns the longer slice, and a function
//
//	Decode<Type>(p []byte) (Type, error)
//
// that reads one value from the front of p. Bytes behind the known fields are
// tolerated, because later releases append fields; missing bytes are an error that
// wraps [ErrTruncated] or [ErrMalformed]. Counts and lengths are compared with the
// bytes that are really there before anything is allocated.
//
// Byte slices inside a decoded value alias the input. Copy them if they must outlive
// the buffer.
//
// All integers are little-endian unless a comment says otherwise.
package wire
