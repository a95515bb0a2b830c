package control_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The requests of the block server, and its answers.
const (
	writeBlock  uint16 = 1000 + iota // Front: number of the block, Data: the block
	readBlock                        // Front: number of the block
	blockDone                        // Data: the block, if it was read
	blockFailed                      // Front: why

	blockSize = 4096
)

// blockStore is what a core has of the server. Nobody else touches it: no lock is needed.
type blockStore struct {
	file *loop.File
	free []*blockRequest // used again, so that a request allocates nothing
}

var blockStores loop.Local[blockStore]

// blockRequest is one request that waits for the disk.
type blockRequest struct {
	loop.FileOp
	due   control.PendingReply
	block *control.Message // retained until it is durable; nil: a read
}

// serveBlocks gets the requests (Dispatcher.Fast).
func serveBlocks(c *control.Conn, m *control.Message) bool {
	core := c.Core()
	s := blockStores.Of(core)
	var r *blockRequest
	if last := len(s.free) - 1; last >= 0 {
		r, s.free = s.free[last], s.free[:last]
	} else {
		r = new(blockRequest)
		r.Done = r.done
	}
	r.due, r.Err = c.Later(m), os.ErrInvalid
	if len(m.Front) == 4 && s.file != nil {
		off := int64(binary.LittleEndian.Uint32(m.Front)) * blockSize
		switch {
		case m.Type == readBlock:
			r.Err = c.ReadReply(s.file, &r.FileOp, m, blockSize, off)
		case m.Type == writeBlock && len(m.Data) == blockSize:
			m.Retain() // it is written from where it was received
			r.block = m
			r.Err = s.file.WriteAt(&r.FileOp, m.Data, off, loop.Committed)
		}
	}
	if r.Err != nil { // it was not taken
		r.done(core, &r.FileOp)
		return true
	}
	c.Hold(s.file) // no more of them than the disk can take
	return true
}

// done answers, on the core: a write behind the sync that covers it, a read with the buffer
// that it was read into.
func (r *blockRequest) done(c *loop.Core, op *loop.FileOp) {
	var answer *control.Message
	if op.Err == nil && r.block == nil {
		answer = control.FileMessage(op, blockDone)
	} else if answer, _ = control.LendMessage(c, blockDone, 0); op.Err != nil { // without data it does not fail
		answer.Type, answer.Front = blockFailed, []byte(op.Err.Error())
	}
	if r.due.Send(answer) != nil {
		answer.Release() // the connection is gone, or its client does not read
	}
	if r.block != nil {
		r.block.Release()
	}
	r.due, r.block = control.PendingReply{}, nil
	s := blockStores.Of(c)
	s.free = append(s.free, r)
}

// A block server, whole: a block is written durably, with direct I/O where the file
// system has it and without a copy, and acknowledged behind the sync that covers it and
// others (group commit); it is read into the buffer that is sent. All of it happens on the
// core that has received the request.
func ExampleConn_ReadReply() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "blocks")
	try(err)
	defer os.RemoveAll(dir)
	blocks := loop.CoreFile{
		Path:    func(int) string { return filepath.Join(dir, "blocks") },
		Options: loop.FileOptions{Write: true, Create: true, Direct: uring.TryDirect},
	}
	m, err := control.New(control.Config{
		Name:      wire.EntityName{Type: wire.OSD, ID: "0"},
		Receiving: control.Receiving{AlignFrom: blockSize}, // so that blocks can be written as they are received
		Plane: loop.Config{Cores: 1, Started: func(c *loop.Core) error {
			err := blocks.Open(c)
			blockStores.Of(c).file = blocks.On(c)
			return err
		}},
	})
	try(err)
	try(m.Start(&control.Dispatcher{Fast: serveBlocks}))
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start())
	conn, err := client.Connect(addrs[0], wire.OSD)
	try(err)
	block := make([]byte, blockSize)
	copy(block, "hello")
	seven := binary.LittleEndian.AppendUint32(nil, 7)
	answer, err := conn.Call(ctx, control.NewMessage(writeBlock, seven, block))
	try(err)
	fmt.Println("written:", answer.Type == blockDone)
	answer.Release()
	answer, err = conn.Call(ctx, control.NewMessage(readBlock, seven, nil))
	try(err)
	fmt.Printf("read: %s\n", answer.Data[:5])
	answer.Release()
	try(client.Shutdown(ctx))
	try(m.Shutdown(ctx))
	// Output:
	// written: true
	// read: hello
}
