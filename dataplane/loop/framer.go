package loop

// Framer is the protocol on a socket: it cuts received bytes into frames, and builds
// the bytes of writes. A frame is the unit of the protocol's stream, such as a request
// or a record. The loop reads and writes bytes only. All methods run on the core that
// owns the socket and must not block. A socket has one framer; a framer may have several
// sockets.
type Framer interface {
	// Feed takes frames from the beginning of p, which is valid only during the call, and
	// reports them. It stops when it has stopped the socket (Pause, Hold) or ended it, and
	// when the time of the turn is over (Core.Late). When a stopped socket goes on, Feed
	// gets the bytes again that it did not take, possibly none.
	Feed(s *Socket, p []byte) Taken
	// Pending reports whether there are bytes to write.
	Pending(s *Socket) bool
	// Gather builds one write of pending frames, as many as w takes; the loop calls it
	// again when the write has ended. The loop calls it after Socket.Mark, at most once
	// in a turn, and not while a write is under way. An error ends the socket.
	Gather(s *Socket, w *Write) error
	// Ended says that the socket has ended, and why. It is the last call for
	// the socket, and comes once, unless the framer has ended it by Close.
	Ended(s *Socket, err error)
}

// Taken is the report of a Feed.
type Taken struct {
	// Bytes is the number of taken bytes of p. The loop keeps the others. A call that takes
	// none ends the socket, unless the framer has stopped it, or Need is more than len(p).
	Bytes int
	// Frames is the number of frames that became complete. The loop bounds turns by this
	// number, and has a socket receive according to the average size. Frames that ask for no
	// work, if the framer counts them in CoreStats.AcksIn, do not bound requests on files.
	Frames int
	// Need is the size of the frame that begins after Bytes, in bytes, or of its header if
	// that is incomplete, or one more than there is if the size is unknown, as that of a
	// line; 0 if no frame has begun. The framer has bounded it. The loop gathers the frame, a
	// large one without a copy, and Feed then gets these bytes (Socket.Keep), and more only if
	// one was missing. A Placer, which gathers frames itself, leaves it 0.
	Need int
}

// HalfCloser is a Framer that decides how long a half-closed socket stays, whose peer has
// ended its direction of the stream. Without it the socket stays until nothing is pending
// and all is written.
type HalfCloser interface {
	Framer
	// HalfClosed decides whether the socket stays, to be written to. It is called when Feed has
	// got the last bytes of the peer, and then whenever a write has ended and no bytes are
	// pending. With false the socket ends at once (ErrPeerClosed).
	HalfClosed(s *Socket) (stay bool)
}

// Placer is a Framer that says where bytes belong: it gathers frames in memory of its
// own choice.
type Placer interface {
	Framer
	// Target is the place of the next bytes of the stream, empty for the receive buffer.
	// ahead is the number of bytes after p that may be read into the receive buffer in the
	// same read, at most ReceiveBytes, and not 0 if p is empty. 0 says that p is not the
	// end of its frame. Target may stop the socket instead.
	Target(s *Socket) (p []byte, ahead int)
	// Filled reports that n bytes of the last Target have come, 0 if none have. It follows each
	// Target that was not empty, and returns the number of frames that these bytes have
	// completed.
	Filled(s *Socket, n int) (frames int)
}
