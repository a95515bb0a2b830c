package loop

// Framer is the protocol on a socket: it cuts the bytes that come into frames, and
// builds the bytes that are written. A frame is what the stream of the protocol consists
// of: a request, a record. The loop reads and writes, and knows no frame. All methods run
// on the core that owns the socket and must not block; a socket has one framer, a framer
// may have several sockets.
type Framer interface {
	// Feed takes the frames at the beginning of p, which is valid only during the call,
	// and reports what it has taken. It stops taking when it has stopped the socket
	// (Pause, Hold) or ended it, and when the turn has lasted long enough (Core.Late). When
	// a stopped socket goes on, Feed gets the bytes again that it did not take; there may
	// be none.
	Feed(s *Socket, p []byte) Taken
	// Pending says whether there is anything to write.
	Pending(s *Socket) bool
	// Gather builds one write of what is pending, of as much as w takes: the
	// loop asks again when it has ended. It is called once in a turn at most,
	// behind Socket.Mark, and not while a write is under way. An error ends the
	// socket.
	Gather(s *Socket, w *Write) error
	// Ended says that the socket has ended, and why. It is the last call for
	// the socket, and comes once, unless the framer has ended it by Close.
	Ended(s *Socket, err error)
}

// Taken is the report of a Feed.
type Taken struct {
	// Bytes is how many bytes of p are taken. The loop keeps the others. A call takes some
	// unless the socket is stopped, or Need says why not.
	Bytes int
	// Frames is how many frames became complete. The loop bounds turns by this number, and
	// has a socket receive according to the average size. Frames that ask for
	// nothing, if the framer counts them in CoreStats.AcksIn, do not bound requests on files.
	Frames int
	// Need is the size of the frame that begins behind Bytes, or of its head if that is
	// not there, in bytes; 0 if no frame is begun. The framer has bounded it. The loop
	// gathers the frame, a large one without a copy, and Feed then gets exactly these bytes
	// (Socket.Keep). A Placer, which gathers frames itself, leaves it 0.
	Need int
}

// HalfCloser is a Framer that decides what becomes of a socket whose peer has ended its
// direction of the stream. Without it the socket stays until nothing is pending and all is
// written.
type HalfCloser interface {
	Framer
	// HalfClosed says whether the socket stays, to be written to. It is called when Feed
	// has got the last bytes of the peer, and then whenever a write has ended and nothing
	// is pending. With false the socket ends at once (ErrPeerClosed), whatever is pending.
	HalfClosed(s *Socket) (stay bool)
}

// Placer is a Framer that says where bytes belong: it gathers frames in memory of its
// own choice.
type Placer interface {
	Framer
	// Target is where the next bytes of the stream belong, empty for the receive
	// buffer. ahead is how many of the bytes that stand behind p may be read into
	// the receive buffer along with them, ReceiveBytes at most; not 0 if p is
	// empty. 0 says that p is not the end of its frame. It may stop the socket
	// instead.
	Target(s *Socket) (p []byte, ahead int)
	// Filled says that n bytes of the last Target have come, 0 if none have. It
	// follows each Target that was not empty, and returns how many frames these
	// bytes have completed.
	Filled(s *Socket, n int) (frames int)
}
