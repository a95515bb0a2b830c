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
)

const (
	readPage   uint16 = 1000 + iota // Front: number of the page
	pageRead                        // Data: the page
	pageFailed                      // Front: why

	pageSize = 5
)

// pageServer has the pages in files, one of each core: page n is in that of core n % cores.
type pageServer struct {
	m     *control.Messenger
	cores int
	pages loop.CoreFile
}

// pageRequest is a request on its way: to another core it is a Task, to the disk a FileOp.
type pageRequest struct {
	loop.Task
	loop.FileOp
	s   *pageServer
	due control.PendingReply // knows the connection, wherever that goes meanwhile
	msg *control.Message     // retained, as its dispatch ends before it has been read
}

// serve gets the requests on the core of their connection (Dispatcher.Fast), and sends each
// to the core that has its page. One that is used again would allocate nothing.
func (s *pageServer) serve(c *control.Conn, m *control.Message) bool {
	if m.Type != readPage || len(m.Front) != 4 {
		return false
	}
	r := &pageRequest{s: s, due: c.Later(m), msg: m}
	r.Run, r.Done = r.read, r.done
	m.Retain()
	s.m.Core(int(r.page()) % s.cores).Post(&r.Task)
	return true
}

func (r *pageRequest) page() uint32 { return binary.LittleEndian.Uint32(r.msg.Front) }

// read is on the core that has the page.
func (r *pageRequest) read(c *loop.Core) {
	at := int64(r.page()) / int64(r.s.cores) * pageSize
	if r.Err = r.due.Conn().ReadReply(r.s.pages.On(c), &r.FileOp, r.msg, pageSize, at); r.Err != nil {
		r.done(c, &r.FileOp) // it was not taken
	}
}

// done sends the reply from here. The buffer comes back to this core when it was sent.
func (r *pageRequest) done(_ *loop.Core, op *loop.FileOp) {
	var reply *control.Message
	if op.Err == nil {
		reply = control.FileMessage(op, pageRead)
	} else {
		reply = control.NewMessage(pageFailed, []byte(op.Err.Error()), nil)
	}
	if r.due.Send(reply) != nil {
		reply.Release() // the connection is gone, or its client does not read
	}
	r.msg.Release()
}

// A request comes to the core of its connection, and its file is that of another core: the
// request goes there and is answered from there.
func ExampleConn_ReadReply_otherCore() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "pages")
	try(err)
	defer os.RemoveAll(dir)
	s := &pageServer{cores: 2}
	s.pages.Path = func(core int) string { return filepath.Join(dir, fmt.Sprint("core", core)) }
	try(os.WriteFile(s.pages.Path(0), []byte("applemango"), 0o600))
	try(os.WriteFile(s.pages.Path(1), []byte("grapelemon"), 0o600))
	s.m, err = control.New(control.Config{
		Name:  wire.EntityName{Type: wire.OSD, ID: "0"},
		Plane: loop.Config{Cores: s.cores, Started: s.pages.Open}, // closed with its core
	})
	try(err)
	try(s.m.Start(&control.Dispatcher{Fast: s.serve}))
	addrs, err := s.m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	try(err)

	client, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}})
	try(err)
	try(client.Start())
	conn, err := client.Connect(addrs[0], wire.OSD)
	try(err)
	for page := range uint32(5) {
		reply, err := conn.Call(ctx, control.NewMessage(readPage, binary.LittleEndian.AppendUint32(nil, page), nil))
		try(err)
		fmt.Printf("%s%s\n", reply.Data, reply.Front)
		reply.Release()
	}
	try(client.Shutdown(ctx))
	try(s.m.Shutdown(ctx))
	// Output:
	// apple
	// grape
	// mango
	// lemon
	// EOF
}
