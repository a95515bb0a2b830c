package kvformat

import (
	"fmt"
	"math"
	"slices"
)

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
