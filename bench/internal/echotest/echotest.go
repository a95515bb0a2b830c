// Package echotest is a test for every echo server of the benchmark that speaks msgr2.1, in
// this module and in the module of the rivals.
package echotest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/bench/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// conn is a session with a server.
type conn struct {
	net.Conn
	enc *frame.Encoder
	dec *frame.Decoder
}

// connect opens one, until the test ends.
func connect(t *testing.T, to net.Addr, secure bool) *conn {
	t.Helper()
	c, err := net.Dial("tcp4", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	enc, dec, err := session.Connect(t.Context(), c, 0, 1, secure)
	if err != nil {
		t.Fatal(err)
	}
	return &conn{Conn: c, enc: enc, dec: dec}
}

// AnswersAndKeeps checks that a server answers keepalives, sends each message back with all of
// its segments, with small data and large, and then closes a connection that breaks the
// protocol.
func AnswersAndKeeps(t *testing.T, to net.Addr, secure bool) {
	t.Helper()
	c := connect(t, to, secure)
	for i, size := range []int{0, 4, 16 << 10, 1 << 20} {
		data := bytes.Repeat([]byte{byte('a' + i)}, size)
		sent := frame.MessageHeader{Seq: uint64(i + 1), TID: uint64(100 + i), Type: 77}
		c.send(t, frame.TagKeepalive2, []byte("12345678"))
		var header [frame.MessageHeaderSize]byte
		sent.Put(&header)
		c.send(t, frame.TagMessage, header[:], []byte("front"), []byte("middle"), data)
		if f := c.receive(t); f.Tag != frame.TagKeepalive2Ack || string(f.Seg[0]) != "12345678" {
			t.Fatalf("%v %q", f.Tag, f.Seg[0])
		}
		f := c.receive(t)
		got, err := frame.ParseMessageHeader(f.Seg[0])
		if err != nil || got.Seq != sent.Seq || got.AckSeq != sent.Seq || got.TID != sent.TID || got.Type != sent.Type {
			t.Errorf("header %+v, %v", got, err)
		}
		if string(f.Seg[1]) != "front" || string(f.Seg[2]) != "middle" || !bytes.Equal(f.Seg[3], data) {
			t.Errorf("segments differ with %d bytes of data", size)
		}
	}
	c.breaks(t)
}

// breaks checks that the server closes a connection on which nonsense comes.
func (c *conn) breaks(t *testing.T) {
	t.Helper()
	if _, err := c.Write(bytes.Repeat([]byte{0xff}, 4096)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes in answer to a broken stream, %v", n, err)
	}
}

func (c *conn) send(t *testing.T, tag frame.Tag, segs ...[]byte) {
	t.Helper()
	p, err := c.enc.AppendFrame(nil, tag, segs...)
	if err == nil {
		_, err = c.Write(p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *conn) receive(t *testing.T) frame.Frame {
	t.Helper()
	head := make([]byte, c.dec.HeadSize())
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	h, err := c.dec.Open(head)
	if err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, c.dec.RestSize(h))
	if _, err := io.ReadFull(c, rest); err != nil {
		t.Fatal(err)
	}
	f, err := c.dec.Finish(h, head, rest)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
