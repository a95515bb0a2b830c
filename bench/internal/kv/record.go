package kv

import (
	"encoding/binary"
	"hash/crc32"
)

// A record of the log is what cmd/ringkv writes: a header, the key, the value. The header:
//
//	 0  crc32c of what is behind it in the header, and of the key, begun with salt and offset
//	 4  crc32c of the value
//	 8  length of the value, 32 bits
//	12  length of the key, 16 bits; kind, 8 bits; 'k'
//	16  how much of the log was durable, 64 bits
const (
	recordHead = 24
	recordPut  = 1
	recordMark = 'k'
)

// header is what a record says of itself.
type header struct {
	key, value int // their lengths
	sum        uint32
	durable    uint64
}

// log is what all records of a file share.
type log struct {
	salt  uint32
	table *crc32.Table
}

func newLog(salt uint32) log { return log{salt, crc32.MakeTable(crc32.Castagnoli)} }

// sum is the checksum of a header and the key behind it, at off.
func (l log) sum(p []byte, off int64) uint32 {
	return crc32.Update(l.salt^uint32(off)*0x9e3779b1, l.table, p[4:])
}

// valueSum is the checksum of a value.
func (l log) valueSum(p []byte) uint32 { return crc32.Checksum(p, l.table) }

// put writes header and key into p, which has room for both, as they are at off.
func (l log) put(p []byte, h header, key []byte, off int64) {
	le := binary.LittleEndian
	le.PutUint32(p[4:], h.sum)
	le.PutUint32(p[8:], uint32(h.value))
	le.PutUint32(p[12:], uint32(h.key)|recordPut<<16|recordMark<<24)
	le.PutUint64(p[16:], h.durable)
	copy(p[recordHead:], key)
	le.PutUint32(p, l.sum(p[:recordHead+h.key], off))
}

// parse reads a header. It is false if none is there.
func (l log) parse(p []byte) (h header, ok bool) {
	le := binary.LittleEndian
	h = header{key: int(le.Uint16(p[12:])), value: int(le.Uint32(p[8:])), sum: le.Uint32(p[4:]), durable: le.Uint64(p[16:])}
	return h, p[14] == recordPut && p[15] == recordMark && h.key <= MaxKey && h.value <= MaxValue
}

// holds says whether a header and its key, in p, were written at off.
func (l log) holds(p []byte, off int64) bool { return binary.LittleEndian.Uint32(p) == l.sum(p, off) }

// size is how long a record is.
func (h header) size() int64 { return recordHead + int64(h.key) + int64(h.value) }
