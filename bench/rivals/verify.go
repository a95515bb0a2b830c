package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/grpc/mem"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
)

// A request is a header, transaction id, size of the payload and a crc of both, and the
// payload, which all requests share. What the header of a msgr frame is to load.Load this
// one is here: it is checked in every reply, the bytes of the payload in those of the
// sample.
const (
	headerSize = 16
	headerSum  = 12 // where the crc is
)

// numbers are the transaction ids of one worker: replies come in the order of the
// requests. Sending and receiving may be on two goroutines.
type numbers struct {
	table *crc32.Table
	asked uint64 // of the next request
	want  uint64 // of the next reply
}

// newNumbers makes the numbers of worker index.
func newNumbers(index int) numbers {
	first := uint64(index)<<40 + 1
	return numbers{crc32.MakeTable(crc32.Castagnoli), first, first}
}

// request makes the next one.
func (n *numbers) request(payload []byte) message {
	h := make([]byte, headerSize)
	binary.LittleEndian.PutUint64(h, n.asked)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[headerSum:], crc32.Checksum(h[:headerSum], n.table))
	n.asked++
	return message{mem.BufferSlice{mem.SliceBuffer(h), mem.SliceBuffer(payload)}}
}

// check verifies the next reply and gives its buffers back.
func (n *numbers) check(m *message, payload []byte) error {
	defer m.data.Free()
	tid := n.want
	n.want++
	if got, want := m.data.Len(), headerSize+len(payload); got != want {
		return fmt.Errorf("%w: %d bytes, want %d", load.ErrReply, got, want)
	}
	var h [headerSize]byte
	m.data.CopyTo(h[:])
	if crc32.Checksum(h[:headerSum], n.table) != binary.LittleEndian.Uint32(h[headerSum:]) {
		return fmt.Errorf("%w: header crc", load.ErrReply)
	}
	if got := binary.LittleEndian.Uint64(h[:]); got != tid {
		return fmt.Errorf("%w: transaction %#x, want %#x", load.ErrReply, got, tid)
	}
	if tid&load.SampleMask == 0 {
		return compare(m.data, payload)
	}
	return nil
}

// compare compares every byte after the header.
func compare(data mem.BufferSlice, payload []byte) error {
	skip, off := headerSize, 0
	for _, b := range data {
		p := b.ReadOnlyData()
		k := min(skip, len(p))
		skip -= k
		p = p[k:]
		if !bytes.Equal(p, payload[off:off+len(p)]) {
			return fmt.Errorf("%w: bytes differ at %d or later", load.ErrReply, off)
		}
		off += len(p)
	}
	return nil
}
