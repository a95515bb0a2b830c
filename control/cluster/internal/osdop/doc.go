// Package osdop has the bytes of the messages between clients and OSDs: requests on objects, their
// answers, back-offs, events of watches, and operations on pools, which monitors carry out. It
// does no I/O.
//
// A caller makes a [Request] of operations ([Read], [Write], [SetXattr], ...). Whoever sends it adds an
// [Envelope], and has [Request.Append] write MOSDOp, as 16.2, 18.2 and 20.2 take it:
//
//	func (r *Request) Writes() bool                 // it changes the object
//	func (r *Request) Append(front []byte, e *Envelope) (out, data []byte, err error)
//	func Version(f wire.Features) uint16            // of MOSDOp's header; compat is CompatOp
//	func DecodeReply(front, data []byte, into *Reply, ops []Op) error
//	func (r *Reply) Release()                       // the memory of the outputs
//
// The data of a message is the input of its operations. If one of them has some it is that, not copied;
// the outputs of an answer lie in the message too. If the only output is that of a read, it is
// the whole data of the answer, so that it can be read straight into memory of the caller.
//
// Errors wrap wire.ErrMalformed or wire.ErrTruncated. The memory that a decoder takes is bounded by the size of its input.
//
//	op.go        Op, and operations on data
//	op_named.go  operations on attributes, omaps and classes, watches and lists
//	output.go    the outputs of operations
//	request.go   Request, Envelope: MOSDOp
//	reply.go     Reply: MOSDOpReply
//	hobject.go   HObject: positions in a pool's order of objects
//	event.go     Backoff, WatchNotify
//	pool.go      PoolOp: MPoolOp and its answer
package osdop
