// Package osdop has the bytes of the messages between clients and OSDs: requests on objects, their
// answers, back-offs and events of watches. It does no I/O.
//
// A caller makes a [Request] of operations, whose input and output are package rados'. The sender adds an
// [Envelope], and has [Request.Append] write MOSDOp, as 16.2, 18.2 and 20.2 take it. [DecodeReply] reads the
// answer.
//
// The data of a message is the input of its operations. If one of them has some it is that, not copied;
// the outputs of an answer lie in the message too. If the only output is that of a read, it is
// the whole data of the answer, so that it can be read straight into memory of the caller.
//
// Errors wrap wire.ErrMalformed or wire.ErrTruncated. The memory that a decoder takes is bounded by the size
// of its input.
//
//	op.go       Op, and the shapes that operations have
//	request.go  Request, Envelope: MOSDOp
//	reply.go    Reply: MOSDOpReply
//	hobject.go  HObject: positions in a pool's order of objects
//	event.go    Backoff; operations and events of watches
package osdop
