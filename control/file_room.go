package control

// The memory that waits for a disk is bounded: a file is full when as many requests as
// FileOptions.Ops have not ended, those included whose write waits for a sync. Who has
// more should stop taking what makes them.

// Full says that the file has enough to do: as many requests as FileOptions.Ops are
// under way, or requests wait for room that the core's files share (dataplane.Config.FileOps).
// Further ones are taken all the same. On the core.
func (f *File) Full() bool { return f.busy() >= f.most || f.f.Full() }

// busy is how many requests have not ended, without those that wait for memory or for
// their connection's turn: these are no reason for other connections to wait.
func (f *File) busy() int { return f.ops - f.f.Parked() }

// Hold stops reading from a connection while the file is Full, and says whether it is. For
// Dispatcher.Fast, behind the request that the message made: what came in the same read is
// still dispatched, the rest waits in the peer. The connection is resumed when the file has
// room for a quarter of FileOptions.Ops, or has ended, wherever the connection is by then; a
// Pause of the user's own ends with that. It has no effect on the connection to ourselves.
// On the core.
func (f *File) Hold(conn *Conn) bool {
	if !f.Full() {
		return false
	}
	f.full = true
	if !conn.local && conn.receiving.waitsFor.CompareAndSwap(nil, f) {
		f.held = append(f.held, conn)
		conn.reads.hold(conn)
	}
	return true
}

// room tells those who wait for it that there is room. It is called whenever a request has
// ended, which is also how the requests of a file end that is closed, or whose core fails.
//
// There is room again when a quarter of the bound is free: with one place only, connections
// that have more than the disk takes would stop and go on with every request.
func (f *File) room() {
	if !f.full || f.Full() || f.busy() >= f.most-f.most/4 && !f.ended {
		return
	}
	f.full = false
	f.held, f.resume = f.resume[:0], f.held
	for i, conn := range f.resume {
		f.resume[i] = nil
		conn.receiving.waitsFor.Store(nil)
		conn.reads.goOn(conn)
	}
	if f.OnRoom != nil && !f.ended {
		f.OnRoom(f)
	}
}
