package server

import "encoding/binary"

// A request of a raw client: its length stands in the first requestHead bytes, at
// requestLength, and does not count requestRest bytes around the payload.
const (
	requestHead   = 32
	requestLength = 20
	requestRest   = 90
)

// requestSize is the size of the request that begins with head.
func requestSize(head []byte) int {
	return requestRest + int(binary.LittleEndian.Uint32(head[requestLength:]))
}

// wholeRequests is the size of the requests at the beginning of p that are whole.
func wholeRequests(p []byte) (whole int) {
	for rest := p; len(rest) >= requestHead; rest = p[whole:] {
		n := requestSize(rest)
		if n > len(rest) {
			break
		}
		whole += n
	}
	return whole
}
