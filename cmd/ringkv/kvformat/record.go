package kvformat

import (
	"encoding/binary"
	"hash/crc32"
)

// The types of messages.
const (
	Put      uint16 = 1100 + iota // Front: key, Data: value
	Get                           // Front: key
	Delete                        // Front: key
	Scan                          // Front: how the keys begin, Data: the least key
	Done                          // Data: the value; of a scan records without values
	NotFound                      // there is no such key
	Failed                        // Front: why
)

// Sizes of a record, in bytes.
const (
	HeaderSize = 16
	MaxKey     = 1 << 10
	MaxValue   = 4 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.LittleEndian
)

// Sum is the crc32c of p.
func Sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// Record is one entry of the log: a key and its value. Without a value it deletes the key.
// On disk it is a header, the key and the value; the header:
//
//	 0  crc32c of the rest of the header and the key, begun with the segment's salt and the offset
//	 4  crc32c of the value
//	 8  length of the value, 32 bits
//	12  length of the key, 16 bits; 2; 'k'
//
// The first crc holds at one place of one segment only: bytes that a client has chosen, or
// that were there before, are never taken for a record.
type Record struct {
	Key, Value []byte
	Sum        uint32 // crc32c of the value
	Off, Size  int64  // its offset and its length on disk
	Whole      bool   // the value has the crc Sum
}

// Deletes says that the record has no value, be it damaged.
func (r *Record) Deletes() bool { return r.Size == HeaderSize+int64(len(r.Key)) }

func headerSum(salt uint32, off int64, headerAndKey []byte) uint32 {
	return crc32.Update(salt^uint32(off)*0x9e3779b1, castagnoli, headerAndKey[4:])
}

// AppendHeader appends the header and the key of r as they are written at r.Off. The value
// follows on disk.
func (r *Record) AppendHeader(to []byte, salt uint32) []byte {
	at := len(to)
	to = order.AppendUint32(to, 0)
	to = order.AppendUint32(to, r.Sum)
	to = order.AppendUint32(to, uint32(len(r.Value)))
	to = append(order.AppendUint16(to, uint16(len(r.Key))), 2, 'k')
	to = append(to, r.Key...)
	order.PutUint32(to[at:], headerSum(salt, r.Off, to[at:]))
	return to
}

// Keys is the answer to a scan: records without values, as ReadAll reads them without a salt.
func Keys(keys []string) (list []byte) {
	for _, key := range keys {
		r := Record{Key: []byte(key), Off: int64(len(list))}
		list = r.AppendHeader(list, 0)
	}
	return list
}

// Read reads the record that p begins with, which was read from off on. It is false
// if there is none. The value is nil if p ends within it.
func Read(p []byte, salt uint32, off int64) (r Record, ok bool) {
	if len(p) < HeaderSize {
		return r, false
	}
	key, value := int64(order.Uint16(p[12:])), int64(order.Uint32(p[8:]))
	keyEnd := HeaderSize + key
	if key > MaxKey || value > MaxValue || int64(len(p)) < keyEnd || headerSum(salt, off, p[:keyEnd]) != order.Uint32(p) {
		return r, false
	}
	r = Record{Key: p[HeaderSize:keyEnd], Sum: order.Uint32(p[4:]), Off: off, Size: keyEnd + value}
	if int64(len(p)) >= r.Size {
		r.Value = p[keyEnd:r.Size]
		r.Whole = Sum(r.Value) == r.Sum
	}
	return r, true
}

// ReadAll reads the records at the start of p, as far as they begin below most. All records up
// to least were acknowledged: their values may be damaged, but none may be missing. After least
// the first record that is not whole ends the list. sound: no record below least is missing,
// and none extends beyond least or most.
func ReadAll(p []byte, salt uint32, least, most int64) (list []Record, end int64, sound bool) {
	for end < most {
		r, ok := Read(p[end:], salt, end)
		next := end + r.Size
		switch {
		case end >= least && !r.Whole:
			return list, end, true
		case !ok, next > int64(len(p)), end < least && next > least, next > most:
			return list, end, false
		}
		list, end = append(list, r), next
	}
	return list, end, true
}
