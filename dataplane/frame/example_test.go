package frame_test

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// A message is encoded, and decoded from a stream the way a receiver does it:
// head, sizes, rest.
func Example() {
	keys, err := frame.KeysFromSecret(make([]byte, 64), true)
	if err != nil {
		fmt.Println(err)
		return
	}

	enc := frame.NewEncoder(frame.Rev1)
	if err := enc.Secure(keys.Key, keys.TxNonce); err != nil {
		fmt.Println(err)
		return
	}
	var header [frame.MessageHeaderSize]byte
	frame.MessageHeader{Seq: 1, TID: 7, Type: 42, Priority: 127}.Put(&header)
	wire, err := enc.AppendFrame(nil, frame.TagMessage, header[:], []byte("front"), nil, []byte("data"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(wire), "bytes on the wire")

	stream := bytes.NewReader(wire)
	dec := frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
	if err := dec.Secure(keys.Key, keys.TxNonce); err != nil { // the peer's RxNonce
		fmt.Println(err)
		return
	}
	head := make([]byte, dec.HeadSize(), 4096)
	if _, err := io.ReadFull(stream, head); err != nil {
		fmt.Println(err)
		return
	}
	h, err := dec.Open(head)
	if err != nil {
		fmt.Println(err)
		return
	}
	n := dec.RestSize(h)
	if cap(head) < len(head)+n {
		head = append(make([]byte, 0, len(head)+n), head...)
	}
	rest := head[len(head) : len(head)+n] // right behind head: decrypted in place
	if _, err := io.ReadFull(stream, rest); err != nil {
		fmt.Println(err)
		return
	}
	f, err := dec.Finish(h, head, rest)
	if err != nil {
		fmt.Println(err)
		return
	}
	mh, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v %d: front %q, data %q\n", f.Tag, mh.TID, f.Seg[1], f.Seg[3])
	// Output:
	// 160 bytes on the wire
	// MESSAGE 7: front "front", data "data"
}
