package osdop

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func readCaptured(t testing.TB, name string) []captured.Conversation {
	t.Helper()
	return captured.Conversations(t, "testdata/"+name+".json.gz")
}

var files = []string{"wire-reef", "wire-tentacle", "wire-extra"}

// parseOp reads MOSDOp.
func parseOp(t *testing.T, version uint16, front, data []byte) (q Request, e Envelope) {
	t.Helper()
	r := wire.NewReader(front)
	r.Envelope(1, func(_ uint8, r *wire.Reader) { e.PG, e.Shard = osdmap.ReadPG(r), int8(r.U8()) })
	e.Hash, e.Epoch, e.Flags = r.U32(), r.U32(), r.U32()
	r.Skip(6 + 21 + 24)
	if version >= 9 {
		r.Skip(7)
	}
	r.U32()
	q.MTime = r.Utime()
	q.Target = readLocator(r)
	q.Target.Name = r.Str()
	q.Ops = make([]Op, r.U16())
	for i := range q.Ops {
		q.Ops[i].Code, q.Ops[i].Flags = r.U16(), r.U32()
		r.Copy(q.Ops[i].Args[:])
		n := r.U32()
		q.Ops[i].Data, data = data[:n:n], data[n:]
	}
	q.Snap, q.SnapSeq = r.U64(), r.U64()
	for range r.Count(8) {
		q.Snaps = append(q.Snaps, r.U64())
	}
	e.Attempt, e.Features = r.S32(), wire.Features(r.U64())
	if r.Err() != nil || r.Len() != 0 || len(data) != 0 {
		t.Fatalf("%v, %d bytes left", r.Err(), r.Len())
	}
	return q, e
}

// Each request of librados is made again from its parts: the same bytes, and of the answer of
// the OSD the result that librados returned.
func TestRequestsAreThoseOfLibradosAndTheirAnswersAreUnderstood(t *testing.T) {
	for _, file := range files {
		for _, c := range readCaptured(t, file) {
			t.Run(file+"/"+c.Label, func(t *testing.T) {
				asked := map[uint64]*Request{}
				for _, m := range c.Messages {
					switch m.Type {
					case TypeOp:
						q, e := parseOp(t, m.Version, m.Front, m.Data)
						if !strings.HasPrefix(c.Label, "x-copy-get") { // sent by an OSD
							again(t, &q, &e, m.Version, m.Front, m.Data)
						}
						asked[m.TID] = &q
					case TypeOpReply:
						answered(t, asked[m.TID], c.Ret, m.Front, m.Data)
					}
				}
			})
		}
	}
}

// again writes a request and compares.
func again(t *testing.T, q *Request, e *Envelope, version uint16, front, data []byte) {
	t.Helper()
	full, envelope := *q, *e
	envelope.Flags &^= OnDisk | KnownRedirect | PoolEIO
	for i, op := range full.Ops {
		full.Ops[i] = remade(op)
	}
	if full.Snap == Head {
		full.Snap = 0
	}
	gotFront, gotData, err := full.Append([]byte("head"), &envelope)
	if err != nil || !bytes.Equal(gotFront[4:], front) || !bytes.Equal(gotData, data) {
		t.Errorf("%v\n got %x %x\nwant %x %x", err, gotFront[4:], gotData, front, data)
	}
	if v := Version(e.Features); v != version {
		t.Errorf("version %d, captured %d", v, version)
	}
}

// remade makes an operation of a watch again, with the numbers of the run. Package rados makes all others.
func remade(op Op) Op {
	r := wire.NewReader(op.Data)
	switch op.Code {
	case CodeWatch:
		return Watch(le.Uint64(op.Args[0:]), op.Args[16], le.Uint32(op.Args[17:]), le.Uint32(op.Args[21:]))
	case CodeNotify:
		r.U32()
		return Notify(le.Uint64(op.Args[0:]), r.U32(), r.Blob())
	case CodeNotifyAck:
		return NotifyAck(r.U64(), r.U64(), r.Blob())
	}
	return op
}

// answered decodes an answer, whole and cut.
func answered(t *testing.T, q *Request, ret *int32, front, data []byte) {
	t.Helper()
	var p Reply
	if err := DecodeReply(front, data, &p, q.Ops); err != nil {
		t.Fatal(err)
	}
	if ret != nil && *ret < 0 && p.Result != *ret {
		t.Errorf("result %d, librados returned %d", p.Result, *ret)
	}
	if p.Epoch == 0 || p.Flags&uint64(OnDisk) == 0 || p.Redirect != nil {
		t.Errorf("%+v", p)
	}
	size := 0
	for _, op := range q.Ops {
		size += len(op.Out)
	}
	if size != len(data) {
		t.Errorf("%d bytes of output, %d of data", size, len(data))
	}
	for n := range front[:len(front)-24] {
		if err := DecodeReply(front[:n], data, &p, q.Ops); err == nil {
			t.Errorf("cut after %d of %d: no error", n, len(front))
		}
	}
	if len(data) > 0 && DecodeReply(front, data[1:], &p, q.Ops) == nil {
		t.Error("cut data: no error")
	}
}
