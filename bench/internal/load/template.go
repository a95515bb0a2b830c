package load

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Places in a MESSAGE frame of revision 1, crc mode, with an empty front and
// middle.
const (
	preambleLen = frame.PreambleSize
	headerLen   = 41
	headLen     = preambleLen + headerLen + 4 // and the crc of the header
	tailLen     = 13
	overhead    = headLen + tailLen

	seqOffset = preambleLen
	tidOffset = preambleLen + 8
)

// messageType is the type of every request; servers do not look at it.
const messageType = 0x0bec

// template is a request that is complete but for its sequence and transaction
// id. All requests of a Load share its payload.
type template struct {
	frame   []byte
	head    []byte // frame[:headLen]
	payload []byte
	tail    []byte // late status and crcs
	wire    int    // bytes of a request or reply, in the mode of the connections
}

// newTemplate builds a request with size random bytes.
func newTemplate(size int) (*template, error) {
	payload := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{'b', 'e', 'n', 'c', 'h'})
	_, _ = rng.Read(payload) // never fails
	var header [headerLen]byte
	h := requestHeader()
	h.Put(&header)
	p, err := frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagMessage, header[:], nil, nil, payload)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if len(p) != size+overhead {
		return nil, fmt.Errorf("a request of %d bytes takes %d on the wire, not %d", size, len(p), size+overhead)
	}
	return &template{
		frame: p, head: p[:headLen], payload: p[headLen : headLen+size], tail: p[headLen+size:],
		wire: len(p),
	}, nil
}

// requestHeader is the header of a request, without numbers.
func requestHeader() frame.MessageHeader {
	return frame.MessageHeader{Type: messageType, Priority: 127, Version: 1, Flags: 3}
}

// number sets sequence and transaction id in head, a copy of the template's.
func number(head []byte, seq, tid uint64) {
	binary.LittleEndian.PutUint64(head[seqOffset:], seq)
	binary.LittleEndian.PutUint64(head[tidOffset:], tid)
	header := head[preambleLen : preambleLen+headerLen]
	binary.LittleEndian.PutUint32(head[preambleLen+headerLen:], frame.SegmentCRC(frame.SegmentCRCInit, header))
}
