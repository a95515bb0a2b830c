//go:build !epoll

package uring

// The kernel's interface, as far as it is used here. Layouts are the same on
// every architecture.

const (
	setupCQSize       = 1 << 3
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupNoSQArray    = 1 << 16

	// Bits of what the kernel can, by which it is known to have more.
	featRegisterByIndex = 1 << 13 // since 6.3; the report of copies came in 6.2
	featReadAttributes  = 1 << 16 // since 6.14; before 6.13 a file that left the table was closed late

	enterGetEvents      = 1 << 0
	enterExtArg         = 1 << 3
	enterRegisteredRing = 1 << 4

	sqCQOverflow = 1 << 1 // in the flags of the submission queue

	offSQRing = 0
	offSQEs   = 0x10000000
)

const (
	opcodeReadv       = 1
	opcodeWritev      = 2
	opcodeFsync       = 3
	opcodeReadFixed   = 4
	opcodePollAdd     = 6
	opcodeSendmsg     = 9
	opcodeAccept      = 13
	opcodeAsyncCancel = 14
	opcodeConnect     = 16
	opcodeFallocate   = 17
	opcodeRead        = 22
	opcodeWrite       = 23
	opcodeRecv        = 27
	opcodeSendmsgZC   = 48
)

const (
	sqeFixedFile    = 1 << 0
	sqeBufferSelect = 1 << 5
	sqeCQESkip      = 1 << 6

	// In ioprio.
	recvMultishot      = 1 << 1
	sendZCReportUsage  = 1 << 3
	acceptMultishot    = 1 << 0
	fsyncData          = 1 << 0 // in opFlags
	pollAddMulti       = 1 << 0 // in len
	cqeBuffer          = 1 << 0
	cqeMore            = 1 << 1
	cqeNotification    = 1 << 3
	cqeBufferMore      = 1 << 4
	cqeBufferShift     = 16
	notificationCopied = 1 << 31 // in res
)

const (
	unregisterBuffers     = 1
	registerFilesUpdate   = 6
	registerFiles2        = 13
	registerBuffers2      = 15
	registerBuffersUpdate = 16
	registerRingFDs       = 20
	unregisterRingFDs     = 21
	registerBufferRing    = 22
	unregisterBufferRing  = 23
	resourceSparse        = 1 << 0 // in resourceTable.flags
	bufferRingIncremental = 1 << 1 // in bufferRegistration.flags
	anyOffset             = 1<<32 - 1
)

// sqe is one request.
type sqe struct {
	opcode  uint8
	flags   uint8
	ioprio  uint16
	fd      int32
	off     uint64
	addr    uint64
	len     uint32
	opFlags uint32
	user    uint64
	group   uint16 // of buffers, or the place of registered memory
	_       uint16
	_       uint32
	_       [2]uint64
}

// cqe is one answer.
type cqe struct {
	user  uint64
	res   int32
	flags uint32
}

type ringParams struct {
	sqEntries    uint32
	cqEntries    uint32
	flags        uint32
	sqThreadCPU  uint32
	sqThreadIdle uint32
	features     uint32
	wqFD         uint32
	_            [3]uint32
	sq           sqOffsets
	cq           cqOffsets
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

// waitArg is the extended argument of io_uring_enter.
type waitArg struct {
	sigmask     uint64
	sigmaskSize uint32
	_           uint32
	timespec    uint64
}

// resourceTable registers a table of files or of memory.
type resourceTable struct {
	n     uint32
	flags uint32
	_     uint64
	data  uint64
	tags  uint64
}

// slotUpdate registers or clears entries of the file table, or the ring itself.
type slotUpdate struct {
	offset uint32
	_      uint32
	data   uint64
}

// resourceUpdate registers or clears places of the table of memory.
type resourceUpdate struct {
	offset uint32
	_      uint32
	data   uint64
	tags   uint64
	n      uint32
	_      uint32
}

type bufferRegistration struct {
	ring    uint64
	entries uint32
	group   uint16
	flags   uint16
	_       [3]uint64
}

// bufferEntry is one entry of a buffer ring. The tail of the whole ring takes
// the place of the first entry's padding.
type bufferEntry struct {
	addr uint64
	len  uint32
	id   uint16
	tail uint16
}
