package osdop

import (
	"encoding/binary"
)

var le = binary.LittleEndian

// Codes of operations. modeWrite is a bit of those that change the object.
const (
	CodeRead        uint16 = 0x1201
	CodeStat        uint16 = 0x1202
	CodeSparseRead  uint16 = 0x1205
	CodeNotify      uint16 = 0x1206
	CodeNotifyAck   uint16 = 0x1207
	CodeAssertVer   uint16 = 0x1208
	CodeWatchers    uint16 = 0x1209
	CodeListSnaps   uint16 = 0x120a
	CodeOmapKeys    uint16 = 0x1211
	CodeOmapVals    uint16 = 0x1212
	CodeOmapHeader  uint16 = 0x1213
	CodeOmapByKeys  uint16 = 0x1214
	CodeOmapCmp     uint16 = 0x1219
	CodeChecksum    uint16 = 0x121f
	CodeCmpExt      uint16 = 0x1220
	CodeGetXattr    uint16 = 0x1301
	CodeGetXattrs   uint16 = 0x1302
	CodeCmpXattr    uint16 = 0x1303
	CodeCall        uint16 = 0x1401
	CodeList        uint16 = 0x1505
	CodeWrite       uint16 = 0x2201
	CodeWriteFull   uint16 = 0x2202
	CodeTruncate    uint16 = 0x2203
	CodeZero        uint16 = 0x2204
	CodeRemove      uint16 = 0x2205
	CodeAppend      uint16 = 0x2206
	CodeCreate      uint16 = 0x220d
	CodeRollback    uint16 = 0x220e
	CodeWatch       uint16 = 0x220f
	CodeOmapSet     uint16 = 0x2215
	CodeOmapSetHead uint16 = 0x2216
	CodeOmapClear   uint16 = 0x2217
	CodeOmapRemove  uint16 = 0x2218
	CodeCopyFrom    uint16 = 0x221a
	CodeAllocHint   uint16 = 0x2223
	CodeWriteSame   uint16 = 0x2226
	CodeOmapRmRange uint16 = 0x222c
	CodeSetXattr    uint16 = 0x2301
	CodeRmXattr     uint16 = 0x2304

	modeWrite = 0x2000
)

// Flags of one operation.
const (
	OpExclusive uint32 = 1 // of create: the object must not exist
	OpFailOK    uint32 = 2 // the request goes on if this operation fails
)

// Op is one operation of a request.
type Op struct {
	Code  uint16
	Flags uint32
	// Args are the 28 bytes that depend on Code. The functions that make operations fill them.
	Args [28]byte
	// Data is the input. It must not change until the request is answered.
	Data []byte

	// Result is how it went; negative: an errno. Out is the output. It lies in the message of the
	// answer, until that is released (Reply.Release).
	Result int32
	Out    []byte
}

// extent makes an operation with an offset and a length.
func extent(code uint16, offset, length uint64, data []byte) Op {
	op := Op{Code: code, Data: data}
	le.PutUint64(op.Args[0:], offset)
	le.PutUint64(op.Args[8:], length)
	return op
}

// input makes an operation whose length is that of its input.
func input(code uint16, data []byte) Op { return extent(code, 0, uint64(len(data)), data) }

// Read reads; length 0: to the end.
func Read(offset, length uint64) Op { return extent(CodeRead, offset, length, nil) }

// SparseRead reads the parts that are stored (SparseOutput).
func SparseRead(offset, length uint64) Op { return extent(CodeSparseRead, offset, length, nil) }

// Stat asks for size and time (StatOutput). As the first of others it asserts that the object exists.
func Stat() Op { return Op{Code: CodeStat} }

// AssertVersion has the request fail, unless the object's user version is this one: with ERANGE
// if it is newer, EOVERFLOW if it is older.
func AssertVersion(v uint64) Op { return extent(CodeAssertVer, 0, v, nil) }

// CompareExtent has the request fail unless the object has these bytes at offset. The result of a difference at byte i is
// CompareMismatch - i.
func CompareExtent(offset uint64, data []byte) Op {
	return extent(CodeCmpExt, offset, uint64(len(data)), data)
}

// CompareMismatch is the result of CompareExtent where the first byte differs.
const CompareMismatch = -4095

// Kinds of checksums.
const (
	XXH32  uint8 = 0
	XXH64  uint8 = 1
	CRC32C uint8 = 2
)

// Checksum asks for the checksums of chunks (ChecksumOutput), each begun with seed. chunk 0: one for all of it.
func Checksum(kind uint8, seed, offset, length uint64, chunk uint32) Op {
	data := le.AppendUint64(nil, seed)
	op := extent(CodeChecksum, offset, length, data[:checksumSize(kind)])
	le.PutUint32(op.Args[16:], chunk)
	op.Args[20] = kind
	return op
}

func checksumSize(kind uint8) int {
	if kind == XXH64 {
		return 8
	}
	return 4
}

// Create makes an object that does not exist, and fails with EEXIST if it must not and does.
func Create(exclusive bool) Op {
	op := Op{Code: CodeCreate}
	if exclusive {
		op.Flags = OpExclusive
	}
	return op
}

// Write writes at offset.
func Write(offset uint64, data []byte) Op { return extent(CodeWrite, offset, uint64(len(data)), data) }

// WriteFull replaces the content.
func WriteFull(data []byte) Op { return input(CodeWriteFull, data) }

// Append writes at the end.
func Append(data []byte) Op { return input(CodeAppend, data) }

// WriteSame repeats a pattern over length bytes, a multiple of it.
func WriteSame(offset, length uint64, pattern []byte) Op {
	op := extent(CodeWriteSame, offset, length, pattern)
	le.PutUint64(op.Args[16:], uint64(len(pattern)))
	return op
}

// Truncate sets the size of an object that exists.
func Truncate(size uint64) Op { return extent(CodeTruncate, size, 0, nil) }

// Zero makes zeros of a range, and does not make the object longer.
func Zero(offset, length uint64) Op { return extent(CodeZero, offset, length, nil) }

// Remove removes the object.
func Remove() Op { return Op{Code: CodeRemove} }

// Rollback gives the object the state of a snapshot.
func Rollback(snap uint64) Op { return extent(CodeRollback, snap, 0, nil) }

// AllocHint says how large the object and writes on it will be. An OSD may ignore it.
func AllocHint(size, write uint64, flags uint32) Op {
	op := extent(CodeAllocHint, size, write, nil)
	op.Flags = OpFailOK
	le.PutUint32(op.Args[16:], flags)
	return op
}
