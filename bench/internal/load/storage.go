package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
)

// verifyEach is the number of acknowledged writes that are read back after each slice.
const verifyEach = 64

// StorageOptions are the requests of a Storage.
type StorageOptions struct {
	Options             // Size is that of a request in bytes, whole blocks
	Kind    blocks.Kind `json:"kind"`
	Flags   uint8       `json:"flags"` // of package blocks
	Path    string      `json:"path"`  // of the file
	File    int64       `json:"file"`  // its size
}

// Storage is a set of connections that read or write blocks of a file. Each request
// under way has a part of the file for itself, and takes a random place in it.
type Storage struct {
	sockets
	opt   StorageOptions
	conns []*slotConn

	file       *os.File // written blocks are read back from it
	rng        *rand.Rand
	generation uint64
	part       int64             // bytes of the file for each slot
	written    [verifyEach]write // acknowledged in this slice, a ring
	writes     int
	room       []byte
}

// write is one that was acknowledged.
type write struct {
	off        int64
	generation uint64
}

// OpenStorage connects and, unless o.Raw, runs the handshake on every connection.
func OpenStorage(ctx context.Context, o StorageOptions) (*Storage, error) {
	s := &Storage{
		opt: o, rng: rand.New(rand.NewPCG(rand.Uint64(), 2)), generation: rand.Uint64() >> 24,
		part: o.File / int64(o.Conns*o.Depth) / blocks.Size * blocks.Size, room: make([]byte, o.Size),
	}
	var err error
	if s.sockets, err = newSockets(o.PID, s.happened); err != nil {
		return nil, err
	}
	nonce := rand.Uint32()
	if o.Kind == blocks.Write {
		s.file, err = os.Open(o.Path)
	}
	for i := 0; i < o.Conns && err == nil; i++ {
		err = s.add(ctx, i, nonce+uint32(i))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	runtime.GC() // the garbage of the handshakes, before the measurement
	return s, nil
}

// Close closes all connections.
func (s *Storage) Close() {
	s.sockets.Close()
	if s.file != nil {
		_ = s.file.Close() // it was only read
	}
}

// Run loads the server for one slice, waits until every request is answered, and reads back
// some acknowledged writes. The calling goroutine should be locked to its thread. After an
// error the Storage can only be closed.
func (s *Storage) Run(slice Slice) (Result, error) {
	s.writes = 0
	res, err := s.meter.Run(slice, s, uint64(s.opt.Conns*s.opt.Depth))
	if err != nil {
		return res, err
	}
	res.PerReply = s.conns[0].wire.size(s.opt.answerSize())
	return res, s.readBack()
}

// answerSize is the size of the data of an answer, in bytes.
func (o StorageOptions) answerSize() int {
	if o.Kind == blocks.Read {
		return o.Size
	}
	return 0
}

// readBack compares the file with the last acknowledged writes.
func (s *Storage) readBack() error {
	if s.opt.Kind != blocks.Write {
		return nil
	}
	seen := map[int64]bool{}
	for i := s.writes - 1; i >= max(0, s.writes-verifyEach); i-- {
		w := s.written[i%verifyEach]
		if seen[w.off] {
			continue // it was written again
		}
		seen[w.off] = true
		if _, err := s.file.ReadAt(s.room, w.off); err != nil {
			return err
		}
		g, err := blocks.Check(s.room, w.off)
		if err == nil && g != w.generation {
			err = fmt.Errorf("the file has generation %d", g)
		}
		if err != nil {
			return fmt.Errorf("%w: write %d at %d was acknowledged: %w", ErrReply, w.generation, w.off, err)
		}
	}
	return nil
}

// ask decides the next request of a slot: a random place in its part of the file.
func (s *Storage) ask(t *slot) blocks.Request {
	r := blocks.Request{Kind: s.opt.Kind, Flags: s.opt.Flags, Len: s.opt.Size}
	r.Off = int64(t.number)*s.part + s.rng.Int64N(s.part/int64(r.Len))*int64(r.Len)
	t.at = r.Off
	if r.Kind == blocks.Write {
		s.generation++
		t.generation = s.generation
	}
	return r
}

// check verifies the answer to a request.
func (s *Storage) check(t *slot, data []byte) error {
	if len(data) != s.opt.answerSize() {
		return fmt.Errorf("%d bytes of data", len(data))
	}
	switch s.opt.Kind {
	case blocks.Write:
		s.written[s.writes%verifyEach] = write{t.at, t.generation}
		s.writes++
	case blocks.Read:
		if err := blocks.Stamped(data, t.at); err != nil || t.round&SampleMask != 0 {
			return err
		}
		// Each block by itself: earlier writes may have been smaller than this read.
		for at := 0; at < len(data); at += blocks.Size {
			if _, err := blocks.Check(data[at:at+blocks.Size], t.at+int64(at)); err != nil {
				return err
			}
		}
	}
	return nil
}
