package loop

// Framer is the protocol on a socket: it takes the bytes that come and makes
// frames of them, and it builds what is written. The loop reads and writes for
// it, and knows no frame. All methods run on the core that owns the socket and
// must not block; a socket has one framer, a framer may have several sockets.
type Framer interface {
	// Feed takes received bytes, which are valid only during the call. It takes
	// all of them unless it stops the socket (Pause, Hold) or ends it, or the turn
	// has lasted long enough (Core.Late): then it returns what it did not take.
	// When the socket goes on, Feed gets that again, without what has come since;
	// it may be empty. Each call takes something of p unless the socket is stopped.
	Feed(s *Socket, p []byte) (rest []byte)
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

// Placer is a Framer that says where bytes belong, so that large ones are read
// into their place.
type Placer interface {
	Framer
	// Target is where the next bytes of the stream belong, empty for the receive
	// buffer. ahead is how many of the bytes that stand behind p may be read into
	// the receive buffer along with them, ReceiveBytes at most; not 0 if p is
	// empty. 0 says that p is not the end of its message. It may stop the socket
	// instead.
	Target(s *Socket) (p []byte, ahead int)
	// Filled says that n bytes of the last Target have come, 0 if none have. It
	// follows each Target that was not empty.
	Filled(s *Socket, n int)
}
