// Package echotest is a test for every echo server of the benchmark that speaks msgr2.1, in
// this module and in the module of the rivals.
package echotest

import (
	"bytes"
	"net"
	"testing"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// AnswersAndKeeps checks that a server answers keepalives, sends each message back with all of
// its segments, with small data and large, and then closes a connection that breaks the
// protocol.
func AnswersAndKeeps(t *testing.T, to net.Addr, secure bool) {
	t.Helper()
	c, err := net.Dial("tcp4", to.String())
	clitest.Must(t, err)
	defer c.Close()
	p, err := session.Open(t.Context(), c, 0, 1, secure)
	clitest.Must(t, err)
	for i, size := range []int{0, 4, 16 << 10, 1 << 20} {
		data := bytes.Repeat([]byte{byte('a' + i)}, size)
		sent := frame.MessageHeader{Seq: uint64(i + 1), TID: uint64(100 + i), Type: 77}
		p.Send(frame.TagKeepalive2, []byte("12345678"))
		p.SendMessage(sent, []byte("front"), []byte("middle"), data)
		if stamp := p.Expect(frame.TagKeepalive2Ack); string(stamp) != "12345678" {
			t.Fatalf("%q, %v", stamp, p.Err())
		}
		f := p.Next()
		got, err := frame.ParseMessageHeader(f.Seg[0])
		if err != nil || got.Seq != sent.Seq || got.AckSeq != sent.Seq || got.TID != sent.TID || got.Type != sent.Type {
			t.Errorf("header %+v, %v, %v", got, err, p.Err())
		}
		if string(f.Seg[1]) != "front" || string(f.Seg[2]) != "middle" || !bytes.Equal(f.Seg[3], data) {
			t.Errorf("segments differ with %d bytes of data", size)
		}
	}
	p.WriteRaw(bytes.Repeat([]byte{0xff}, 4096))
	p.ExpectEnd()
	if err := p.Err(); err != nil {
		t.Errorf("in answer to a broken stream: %v", err)
	}
}
