// Package kvformat is what cmd/ringkv has on its disk and says to its clients: the types of
// messages, what a key and a value may hold, the records of a log, and the names of its files. It
// does no I/O, so that its rules are tested without a disk.
package kvformat
