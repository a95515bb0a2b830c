package handshake

import "context"

// Link is one TCP connection. Both calls return when ctx is done at the latest; the
// connection is of no use after an error. They are never called at the same time.
type Link interface {
	// ReadFull fills p. A link may prefetch, but what it has beyond p must still be there
	// for the next reader.
	ReadFull(ctx context.Context, p []byte) error
	// Write writes all of p and does not keep it. It must not wait for the peer to send
	// something first, as both sides begin with a write.
	Write(ctx context.Context, p []byte) error
}

// BufferedLink is a Link that needs a switch to another thread for each call that waits.
// A [Stream] without a probe makes few of those: it queues what it writes, and waits for
// several frames at once where the protocol lets the peer send them without an answer.
type BufferedLink interface {
	Link
	// Queue leaves p, which it does not keep, to the next call that waits: a ReadFull or an
	// Await that has to wait sends it before, and so does a Write or a Flush. Whoever takes
	// the connection over sends what is left.
	Queue(p []byte)
	// Flush writes what was queued.
	Flush(ctx context.Context) error
	// Await sends what was queued and returns when enough says so of the bytes that
	// ReadFull would return next, and also when no more of them come. It consumes nothing.
	// enough sees the same bytes each time, and more. It runs on any thread, may still run
	// when Await has returned because of ctx, and does not keep the bytes.
	Await(ctx context.Context, enough func(unread []byte) bool) error
}
