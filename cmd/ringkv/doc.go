// Command ringkv is a durable key-value store and its load generator: an example, to be
// copied, of a server whose cores read and write the disk themselves.
//
//	ringkv serve --dir DIRECTORY --cores 2 &
//	echo hello | ringkv put v2:127.0.0.1:7777 greeting
//	ringkv get v2:127.0.0.1:7777 greeting
//	ringkv load v2:127.0.0.1:7777 --conns 16 --depth 16 --size 4KiB --puts 50
//
// A put or delete that is answered with success is on the disk. A get sees what is on the
// disk, and nothing else. What was refused may have happened, and is seen behind the next
// start or never.
//
// # The way of a request
//
// Each core has a shard: an index in memory and a log on disk (shard.go). A key belongs to
// one of them, by its hash. The core that a request comes to (server.handle, a
// Dispatcher.Fast) posts it, a loop.Task, to the core of its key, which
//
//   - for a put writes the value from the buffer that it was received in, behind a header
//     (cmd/ringkv/kvformat), to the end of its log (loop.File.WriteAtv), and answers once a
//     sync has covered it, which it shares with all that are written at the time
//     (loop.Committed); the value's crc in the header came with it (Message.DataCRC);
//   - for a get reads the record into a buffer of the core (Conn.ReadReply), checks it, and
//     sends that buffer (control.FileMessage), with that crc (Message.SetDataCRC).
//
// No goroutine waits, no value is copied. What a request needs while it waits is in one
// struct that is used again (server.go); the answer is a control.PendingReply. Conn.Hold stops
// reading from a connection when the disk has enough to do. What happens now and then and may
// block, such as making a file (segment.go), making the index at the start (recover.go), and
// reading what is to be compacted (compact.go), is done beside the core: Core.Offload. I/O
// goes through the page cache, as records have any length; direct I/O wants whole blocks.
//
// # What the disk may do
//
//   - Writes overtake each other. So a record counts only when all before it are durable,
//     and is answered in that order (shard.settle): the log has no holes in what counts.
//   - Power fails within a write. The log ends at the first record that is not whole; the
//     rest is cut off, and logged. Damage is told from a torn tail (recover.go): a server does
//     not start with a log that is shorter than what was acknowledged, such as one that was
//     truncated, or that lacks a file; a value that is damaged is an error to those who read it.
//   - A file is copied, or another one is put beside it. What has a name that the store does
//     not give is left alone, and logged.
//   - A write fails, or the disk is full. The log is cut there and goes on in a new file; if
//     there can be none, changes are refused. Reads go on.
//   - A sync fails. Nobody knows what is left of what it was to cover: the same, and whoever
//     starts behind that writes what it finds once more.
//   - Files are named and removed: the directory is synced before something depends on it.
//
// # What is noticed at the start
//
// The mark (mark.go) says how far the log was acknowledged. It is set about 0.1 s behind the
// first request that it does not cover, and when the server is told to end. So everything that
// was acknowledged more than about 0.1 s before a process died is there, or the next one does
// not start and says what is missing. The last 0.1 s look like a torn tail if they are damaged
// or cut off, and more does while the disk refuses to rename the mark, which is logged. Nothing
// tells that a whole directory is gone, or was replaced by an older copy.
//
// With --accept-loss a server starts with what is left: each file ends where it is damaged, and
// what is behind that is lost. So an old value may be back, or one that was deleted. The next
// process starts without it.
//
// sim_test.go has control/pair run the server on a simulated disk, by seed, and know
// what must be there; kill_test.go does it with processes.
//
//	go test ./cmd/ringkv -run WhateverHappens -kv.seeds=10000 -timeout 2h
package main
