// Package wire has the values that both protocols, and the clients of a cluster, put into
// messages: entity names, addresses, features and methods of compression. A Reader, and the
// functions that begin with Append, are for encodings of other packages.
//
// It does no I/O, keeps no state between calls and starts no goroutine. Several goroutines
// may use one value as long as none of them writes it.
//
// A type has a method
//
//	AppendTo(dst []byte) []byte
//
// that appends its encoding to dst and returns the longer slice, and a method of Reader, or a
// Decode function, that reads one value. Bytes after the known fields are ignored, because
// later releases append fields; missing bytes are an error that wraps [ErrTruncated] or
// [ErrMalformed]. Counts and lengths are compared with the number of remaining bytes before
// memory is allocated.
//
// Byte slices inside a decoded value alias the input. Copy them if they must outlive
// the buffer.
//
// All integers are little-endian unless a comment says otherwise.
package wire
