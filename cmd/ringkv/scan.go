package main

import (
	"bytes"
	"errors"
	"fmt"
)

// Where a log ends is not where its bytes end: behind the last record that was acknowledged
// may be anything, as writes overtake each other on their way to the disk. Such a tail is cut
// off; damage in what was acknowledged must not be taken for one. Two things tell them apart:
// the first record of each segment, a mark, says where the segment before it ends, and each
// record says up to where everything was acknowledged when it was written. When nothing else
// is written for a moment, a mark is, so that the last record has one behind it, too.

var errDamaged = errors.New("the log is damaged")

// contents is what is in a segment.
type contents struct {
	records []record // without their values
	gap     int64    // where the first thing begins that is no record
	durable position // the highest that a record knows
}

// scan reads a whole segment. Behind what is no record it goes on with the next one.
func scan(data []byte, salt uint32) *contents {
	c := &contents{gap: -1}
	for off := int64(0); off < int64(len(data)); {
		r, ok := readRecord(data[off:], salt, off)
		if !ok {
			if c.gap < 0 {
				c.gap = off
			}
			off++
			continue
		}
		off += r.size
		r.key, r.value = bytes.Clone(r.key), nil
		c.records, c.durable = append(c.records, r), max(c.durable, r.durable)
	}
	if c.gap < 0 {
		c.gap = int64(len(data))
	}
	return c
}

// mark is what the first record says of the segments before.
func (c *contents) mark() (before position, ok bool) {
	if len(c.records) == 0 || c.records[0].off != 0 || c.records[0].kind != kindMark {
		return 0, false
	}
	return c.records[0].durable, true
}

// end is where the last segment of a log ends, whose number is given. Up to sure all of it
// was acknowledged, behind that perhaps.
func (c *contents) end(number uint32) (sure, end int64) {
	if c.durable.segment() == number {
		sure = c.durable.off()
	}
	end = sure
	for _, r := range c.records {
		if r.off >= sure {
			if r.off > end || !r.whole {
				break
			}
			end = r.off + r.size
		}
	}
	return sure, end
}

// check says whether everything up to end is a record. A value that is not whole is
// reported to those who read it.
func (c *contents) check(end int64) error {
	if c.gap < end {
		return fmt.Errorf("%w at %d", errDamaged, c.gap)
	}
	return nil
}
