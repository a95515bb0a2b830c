// Package kvformat has the formats of cmd/ringkv on disk and on the wire: the types of
// messages, the bounds of keys and values, the records of a log, and the names of its files. It
// does no I/O, so that its rules are tested without a disk.
package kvformat
