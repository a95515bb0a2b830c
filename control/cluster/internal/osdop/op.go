package osdop

import (
	"encoding/binary"
)

var le = binary.LittleEndian

// Codes of operations.
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
	// Args are the 28 bytes that depend on Code.
	Args [28]byte
	// Data is the input. It must not change until the request is answered.
	Data []byte

	// Result is how it went; negative: an errno. Out is the output. It lies in the message of the
	// answer, until that is released (Reply.Release).
	Result int32
	Out    []byte
}

// Extent makes an operation with an offset and a length, or two other numbers.
func Extent(code uint16, offset, length uint64, data []byte) Op {
	op := Op{Code: code, Data: data}
	le.PutUint64(op.Args[0:], offset)
	le.PutUint64(op.Args[8:], length)
	return op
}

// Input makes an operation whose length is that of its input.
func Input(code uint16, data []byte) Op { return Extent(code, 0, uint64(len(data)), data) }

// Xattr makes an operation on an attribute.
func Xattr(code uint16, name string, value []byte) Op {
	op := Op{Code: code, Data: append([]byte(name), value...)}
	le.PutUint32(op.Args[0:], uint32(len(name)))
	le.PutUint32(op.Args[4:], uint32(len(value)))
	return op
}

// MaxClassName bounds the names of classes and methods, in bytes.
const MaxClassName = 255

// Call calls a method of a class of the OSD. Its names have at most MaxClassName bytes (Request.Append).
func Call(class, method string, in []byte) Op {
	op := Op{Code: CodeCall, Data: append(append([]byte(class), method...), in...)}
	op.Args[0], op.Args[1] = uint8(min(len(class), MaxClassName)), uint8(min(len(method), MaxClassName))
	le.PutUint32(op.Args[3:], uint32(len(in)))
	if len(class) > MaxClassName || len(method) > MaxClassName {
		op.Code = 0 // Append refuses it
	}
	return op
}
