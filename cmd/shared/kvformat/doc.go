// Package kvformat is what a durable key-value store and its clients agree on: the types of
// their messages, what a key and a value may hold, and the records of a log.
//
// It is shared by cmd/ringkv and the benchmark of this module, which compares it with other
// servers, and promises nothing to others.
package kvformat
