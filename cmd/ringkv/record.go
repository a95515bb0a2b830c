package main

import (
	"encoding/binary"
	"hash/crc32"
)

// What a record may hold, in bytes.
const (
	headerSize = 24
	maxKey     = 1 << 10
	maxValue   = 4 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.LittleEndian
)

// position is a place in the log of a shard: the number of a segment, and an offset in it.
type position uint64

func positionOf(segment uint32, off int64) position { return position(segment)<<32 | position(off) }
func (p position) segment() uint32                  { return uint32(p >> 32) }
func (p position) off() int64                       { return int64(uint32(p)) }

// record is one entry of the log: a key and its value. Without a value it deletes the key;
// without a key either it is a mark, which says what is durable. On disk it is a header, the
// key and the value; the header:
//
//	 0  crc32c of the header behind it and the key, begun with the segment's salt and the offset
//	 4  crc32c of the value
//	 8  length of the value, 32 bits
//	12  length of the key, 16 bits; 1; 'k'
//	16  durable, 64 bits
//
// The first crc holds at one place of one segment only: bytes that a client has chosen, or
// that were there before, are never taken for a record.
type record struct {
	key, value []byte
	sum        uint32   // crc32c of the value
	durable    position // everything below was acknowledged when it was written
	off, size  int64
	whole      bool // the value is what was written
}

// deletes says that the record has no value, be it damaged.
func (r *record) deletes() bool { return r.size == headerSize+int64(len(r.key)) }

func headerSum(salt uint32, off int64, headerAndKey []byte) uint32 {
	return crc32.Update(salt^uint32(off)*0x9e3779b1, castagnoli, headerAndKey[4:])
}

// appendHeader appends the header and the key of r as they are written at r.off. The value
// follows on disk.
func (r *record) appendHeader(to []byte, salt uint32) []byte {
	at := len(to)
	to = order.AppendUint32(to, 0)
	to = order.AppendUint32(to, r.sum)
	to = order.AppendUint32(to, uint32(len(r.value)))
	to = append(order.AppendUint16(to, uint16(len(r.key))), 1, 'k')
	to = append(order.AppendUint64(to, uint64(r.durable)), r.key...)
	order.PutUint32(to[at:], headerSum(salt, r.off, to[at:]))
	return to
}

// readRecord reads the record that p begins with, which was read from off on. It is false
// if there is none. The value is nil if p ends within it.
func readRecord(p []byte, salt uint32, off int64) (r record, ok bool) {
	if len(p) < headerSize || p[15] != 'k' {
		return r, false
	}
	value, keyEnd := int64(order.Uint32(p[8:])), headerSize+int64(order.Uint16(p[12:]))
	if value > maxValue || int64(len(p)) < keyEnd || headerSum(salt, off, p[:keyEnd]) != order.Uint32(p) {
		return r, false
	}
	r = record{key: p[headerSize:keyEnd], off: off, size: keyEnd + value}
	r.sum, r.durable = order.Uint32(p[4:]), position(order.Uint64(p[16:]))
	if int64(len(p)) >= r.size {
		r.value = p[keyEnd:r.size]
		r.whole = crc32.Checksum(r.value, castagnoli) == r.sum
	}
	return r, true
}

// readRecords finds the records in p. Behind what is none it goes on with the next one.
func readRecords(p []byte, salt uint32) (list []record) {
	for off := int64(0); off < int64(len(p)); {
		if r, ok := readRecord(p[off:], salt, off); ok {
			list = append(list, r)
			off += r.size
		} else {
			off++
		}
	}
	return list
}
