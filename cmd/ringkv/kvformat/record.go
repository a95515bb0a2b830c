package kvformat

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
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

// Position is a place in a log: the number of a segment, and an offset in it.
type Position uint64

// At makes a Position.
func At(segment uint32, off int64) Position { return Position(segment)<<32 | Position(off) }

// Segment is the number of the segment.
func (p Position) Segment() uint32 { return uint32(p >> 32) }

// Off is the offset in the segment.
func (p Position) Off() int64 { return int64(uint32(p)) }

// Segment is one file of a log. Its name has all fields but Sure and End, which Chain fills in.
// The name of the next segment says where this one ends, durably. A segment that the next one
// skips holds no record that counts.
type Segment struct {
	Core, Cores  int
	Number, Salt uint32
	Before       Position // where the log ends that it goes on with
	Sure, End    int64    // it was acknowledged up to Sure, and counts up to End
}

const segmentName = "%dof%d-%08x-%08x-%016x.log"

// Name is the name of the file.
func (g *Segment) Name() string {
	return fmt.Sprintf(segmentName, g.Core, g.Cores, g.Number, g.Salt, g.Before)
}

// Mark is the name of a file that says which log was acknowledged. It never says more than
// there is, and so it holds for any log that is longer.
type Mark struct {
	Core, Cores int
	Oldest      uint32   // number of the first segment that counts
	Durable     Position // the log was acknowledged up to there
}

const markName = "%dof%d-%08x-%016x.mark"

// Name is the name of the file.
func (k *Mark) Name() string { return fmt.Sprintf(markName, k.Core, k.Cores, k.Oldest, k.Durable) }

// ParseName reads the name of a segment or of a mark; the other result is nil. For all other
// names both are nil, and cores is 0.
func ParseName(name string) (_ *Segment, _ *Mark, cores int) {
	var g Segment
	_, _ = fmt.Sscanf(name, segmentName, &g.Core, &g.Cores, &g.Number, &g.Salt, &g.Before) // or some of it
	if g.Name() == name && g.Core >= 0 && g.Core < g.Cores {
		return &g, nil, g.Cores
	}
	var k Mark
	_, _ = fmt.Sscanf(name, markName, &k.Core, &k.Cores, &k.Oldest, &k.Durable)
	if k.Name() == name && k.Core >= 0 && k.Core < k.Cores {
		return nil, &k, k.Cores
	}
	return nil, nil, 0
}

// Chain follows the names of the segments of a log, found from the oldest to the youngest, back
// from the youngest: counts are the segments of the log, past the skipped ones. lost describes
// the parts that the mark, or a name, speaks of and that are missing.
func Chain(found []*Segment, k *Mark) (counts, past []*Segment, lost []string) {
	var next *Segment
	for _, g := range slices.Backward(found) {
		switch {
		case g.Number < k.Oldest: // its removal has failed, or was undone
			past = append(past, g)
			continue
		case next == nil: // no name says where it ends
			if g.End = math.MaxInt64; g.Number == k.Durable.Segment() {
				g.Sure = k.Durable.Off()
			}
		case g.Number == next.Before.Segment():
			g.Sure, g.End = next.Before.Off(), next.Before.Off()
		case g.Number > next.Before.Segment():
			past = append(past, g)
			continue
		default:
			g.End = math.MaxInt64
			lost = append(lost, "a segment before "+next.Name()+" is missing")
		}
		if g.Number > k.Durable.Segment() && g.Before < k.Durable {
			lost = append(lost, g.Name()+" begins before the end of the acknowledged log")
		}
		counts, next = append(counts, g), g
	}
	slices.Reverse(counts)
	if n := len(counts); k.Oldest <= k.Durable.Segment() &&
		(n == 0 || counts[0].Number > k.Oldest || counts[n-1].Number < k.Durable.Segment()) {
		const text = "%s speaks of segments %08x to %08x, and not all are there"
		lost = append(lost, fmt.Sprintf(text, k.Name(), k.Oldest, k.Durable.Segment()))
	}
	return counts, past, lost
}
