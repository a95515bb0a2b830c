// Command ringkv is a durable key-value store and its load generator: an example, to be
// copied, of a server whose cores read and write the disk themselves.
//
//	ringkv serve --dir DIRECTORY --cores 2 &
//	echo hello | ringkv put v2:127.0.0.1:7777 greeting
//	ringkv get v2:127.0.0.1:7777 greeting
//	ringkv load v2:127.0.0.1:7777 --conns 16 --depth 16 --size 4KiB --puts 50
//
// A put or delete that is answered with success is on the disk. A get sees values on the disk
// only. A refused change may have happened: it is seen after the next start, or never.
//
// # The way of a request
//
// Each core has a shard: an index in memory and a log on disk (shard.go). A key belongs to
// one shard, by its hash. The core that receives a request (server.handle, a
// Dispatcher.Fast) posts it, a loop.Task, to the core of its key. That core
//
//   - for a put writes a header (cmd/ringkv/kvformat) and the value, from its receive buffer,
//     to the end of the log (loop.File.WriteAtv). It answers after a sync, which all writes of
//     the moment share (loop.Committed). The crc of the value came with it (Message.DataCRC);
//   - for a get reads the record into a buffer of the core (Conn.ReadReply), checks it, and
//     sends the buffer (control.FileMessage), with the stored crc (Message.SetDataCRC).
//
// No goroutine waits, no value is copied. A waiting request is one struct, which is used again
// (server.go); the answer is a control.PendingReply. Conn.Hold stops reading from a connection
// when the disk has enough to do. Rare work that may block runs beside the core, by
// Core.Offload: making a file (segment.go), making the index at the start (recover.go), and
// reading a segment to compact (segment.go). I/O goes through the page cache, as records have
// any length; direct I/O wants whole blocks.
//
// # Faults of the disk
//
//   - Writes overtake each other. So a record counts only when all records before it are
//     durable, and answers go out in that order (shard.settle): the log has no holes.
//   - Power fails within a write. The log ends at the first record that is not whole; the
//     rest, a torn tail, is cut off and logged. Damage is different (recover.go): a server
//     does not start with a log that lacks acknowledged records, because it was truncated or
//     lacks a file. A damaged value is an error for its readers.
//   - A file is copied, or a foreign file is put into the directory. The server leaves files
//     with other names alone, and logs them.
//   - A write fails, or the disk is full. The log is cut there and goes on in a new file;
//     without a new file changes are refused. Reads go on.
//   - A sync fails. It is unknown which of its bytes are on the disk: the log is cut, too, and
//     the next process writes the bytes that it finds once more.
//   - Files are named and removed: the directory is synced before other steps depend on it.
//
// # Losses that a start finds
//
// The mark (mark.go) says how far the log was acknowledged. It is set about 0.1 s after the
// first request above it, and when the server ends. So all records that were acknowledged more
// than about 0.1 s before a process died are there, or the next process does not start and
// names the missing ones. Damage of the last 0.1 s looks like a torn tail; the time is longer
// while the disk refuses to rename the mark, which is logged. A start cannot find that a whole
// directory is gone, or was replaced by an older copy.
//
// With --accept-loss a server starts nevertheless: each file ends at its first damage, and the
// rest of it is lost. So an old or a deleted value may be back. The next process starts
// without the flag.
//
// sim_test.go has control/pair run the server on a simulated disk, by seed, and check its
// values; kill_test.go does it with processes.
//
//	go test ./cmd/ringkv -run WhateverHappens -kv.seeds=10000 -timeout 2h
package main
