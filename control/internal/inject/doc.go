// Package inject lets sockets fail by chance, so that a program can be tried on
// connections that break all the time.
//
// Open puts a Driver above every driver of a plane, a real or a simulated one. Of
// the operations on sockets, a send, a read, or bytes that came into the ring's
// buffers, one in so many has its socket shut down first: our side then sees the end
// of the stream or EPIPE, and so does the peer. Nothing else is changed.
//
// What fails is decided by a seed and the number of the core, so that the same
// operations fail again in the same order. Package dataplane/faulty is for single
// faults, each as the kernel has it.
package inject
