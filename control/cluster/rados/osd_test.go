package rados_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// osd is an OSD of ours for one object, in memory: some of its operations, its attributes, and one who watches it.
type osd struct {
	m    *control.Messenger
	addr netip.AddrPort

	mu       sync.Mutex
	content  []byte // nil: there is no object
	xattrs   map[string][]byte
	version  uint64
	watcher  *control.Conn
	cookie   uint64
	notifier *control.Conn
	notify   uint64 // its cookie
}

// startOSD has an OSD serve the object of a cluster, which no client has connected to.
func (c *cluster) startOSD() (*osd, error) {
	o := &osd{xattrs: map[string][]byte{}}
	var err error
	o.m, err = control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Nonce: new(uint32), Plane: loop.Config{Cores: 1}})
	if err == nil {
		err = o.m.Start(&control.Dispatcher{Fast: o.take})
	}
	if err != nil {
		return nil, err
	}
	c.stop = append(c.stop, func() error { return o.m.Shutdown(context.Background()) })
	addrs, err := o.m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err == nil {
		o.addr = addrs[0].AddrPort
	}
	c.osd = o
	return o, err
}

// step is an operation of a request.
type step struct {
	code uint16
	args []byte
	in   []byte
	out  []byte
	err  syscall.Errno
}

// take carries out MOSDOp.
func (o *osd) take(conn *control.Conn, m *control.Message) bool {
	r := wire.NewReader(m.Front)
	skip := func(_ uint8, r *wire.Reader) {}
	r.Envelope(1, skip) // placement group
	r.Skip(4 + 4 + 4)   // hash, epoch, flags
	r.Envelope(2, skip) // request
	r.Skip(24)          // trace
	if m.Version >= 9 {
		r.Envelope(1, skip)
	}
	r.Skip(4 + 8) // incarnation, time
	r.Envelope(6, skip)
	name, data := r.Str(), m.Data
	steps := make([]step, r.U16())
	for i := range steps {
		s := &steps[i]
		s.code = r.U16()
		r.Skip(4)
		s.args = r.Bytes(28)
		n := r.U32()
		s.in, data = bytes.Clone(data[:n]), data[n:]
	}
	r.Skip(8 + 8)
	r.Skip(8 * r.Count(8))
	attempt := r.U32()
	o.mu.Lock()
	defer o.mu.Unlock()
	var failed syscall.Errno
	before, attrs := o.content, o.xattrs
	for i := range steps {
		if s := &steps[i]; failed == 0 {
			failed = o.carryOut(conn, m, s)
			s.err = failed
		}
	}
	if failed != 0 { // all of them or none
		o.content, o.xattrs = before, attrs
	} else if slices.ContainsFunc(steps, func(s step) bool { return s.code&0x2000 != 0 && s.code != osdop.CodeWatch }) {
		o.version++
	}
	b := wire.AppendString(nil, name)
	b = append(b, make([]byte, 17+8)...)
	b = le.AppendUint32(b, uint32(-int32(failed)))
	b = append(b, make([]byte, 12+4)...)
	b = le.AppendUint32(b, uint32(len(steps)))
	var out []byte
	for _, s := range steps {
		b = append(le.AppendUint16(b, s.code), make([]byte, 4+28)...)
		b = le.AppendUint32(b, uint32(len(s.out)))
		out = append(out, s.out...)
	}
	b = le.AppendUint32(b, attempt)
	for _, s := range steps {
		b = le.AppendUint32(b, uint32(-int32(s.err)))
	}
	b = le.AppendUint64(append(b, make([]byte, 12)...), o.version)
	answer := control.NewMessage(osdop.TypeOpReply, append(b, make([]byte, 1+24)...), out)
	answer.TID, answer.Version, answer.CompatVersion = m.TID, 8, 2
	_ = conn.Send(answer) // who is gone needs none
	return true
}

func (o *osd) carryOut(conn *control.Conn, m *control.Message, s *step) syscall.Errno {
	at := le.Uint64(s.args)
	if o.content == nil && s.code != osdop.CodeWriteFull {
		return syscall.ENOENT
	}
	switch s.code {
	case osdop.CodeWriteFull:
		o.content = append([]byte{}, s.in...)
	case osdop.CodeAppend:
		o.content = append(bytes.Clone(o.content), s.in...)
	case osdop.CodeRead:
		s.out = o.content[min(at, uint64(len(o.content))):]
		if n := le.Uint64(s.args[8:]); n > 0 {
			s.out = s.out[:min(n, uint64(len(s.out)))]
		}
	case osdop.CodeStat:
		s.out = append(le.AppendUint64(nil, uint64(len(o.content))), make([]byte, 8)...)
	case osdop.CodeRemove:
		o.content = nil
	case osdop.CodeAssertVer:
		if le.Uint64(s.args[8:]) != o.version {
			return syscall.ERANGE
		}
	case osdop.CodeGetXattr:
		value, ok := o.xattrs[string(s.in)]
		if s.out = value; !ok {
			return syscall.ENODATA
		}
	case osdop.CodeSetXattr:
		n := le.Uint32(s.args)
		attrs := map[string][]byte{string(s.in[:n]): s.in[n:]}
		for name, value := range o.xattrs {
			if name != string(s.in[:n]) {
				attrs[name] = value
			}
		}
		o.xattrs = attrs
	case osdop.CodeWatch:
		o.watcher, o.cookie = conn, at
		if s.args[16] == osdop.WatchEnd {
			o.watcher = nil
		}
	case osdop.CodeNotify:
		r := wire.NewReader(s.in[8:])
		o.notifier, o.notify = conn, at
		s.out = le.AppendUint64(nil, 1)
		if o.watcher == nil {
			o.event(conn, osdop.WatchNotify{What: osdop.EventComplete, Cookie: at, NotifyID: 1}, nil)
			break
		}
		o.event(o.watcher, osdop.WatchNotify{What: osdop.EventNotify, Cookie: o.cookie, NotifyID: 1, Payload: r.Blob()}, nil)
	case osdop.CodeNotifyAck:
		answer := append(le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, 1), 1), o.cookie), s.in[16:]...)
		o.event(o.notifier, osdop.WatchNotify{What: osdop.EventComplete, Cookie: o.notify, NotifyID: 1}, append(answer, 0, 0, 0, 0))
	default:
		return syscall.EOPNOTSUPP
	}
	return 0
}

// event sends MWatchNotify.
func (o *osd) event(to *control.Conn, w osdop.WatchNotify, data []byte) {
	m := control.NewMessage(osdop.TypeWatchNotify, w.AppendTo(nil), data)
	m.Version, m.CompatVersion = 3, 1
	_ = to.Send(m) // who is gone needs none
}

// Start is Operate for who does not wait: calls keep their order, each is told once how it ended, and may start another.
func TestStartTellsEachResultOnce(t *testing.T) {
	c := startCluster(t)
	if _, err := c.startOSD(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := c.dial(ctx, t).Pool(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	o := p.Object(object)
	type end struct {
		i       int
		version uint64
		err     error
	}
	ends := make(chan end, 100)
	start := func(i int, op rados.Op, then func()) {
		err := o.Start(ctx, op, func(version uint64, err error) {
			ends <- end{i, version, err}
			then()
		})
		if err != nil {
			t.Error(err)
		}
	}
	writes := make([]rados.WriteOp, 20)
	var last rados.ReadOp
	all, absent, behind := last.Read(0, 0), last.Xattr("absent"), last.Stat()
	for i := range writes {
		then := func() {}
		if writes[i].Append([]byte{byte(i)}); i == 0 {
			writes[i] = rados.WriteOp{}
			writes[i].WriteFull([]byte{0})
		} else if i == len(writes)-1 {
			then = func() { start(len(writes), &last, func() {}) }
		}
		start(i, &writes[i], then)
	}
	for i := range writes {
		if e := <-ends; e != (end{i, uint64(i + 1), nil}) {
			t.Errorf("end %d is %+v", i, e)
		}
	}
	e := <-ends
	var failed *rados.Error
	if e.i != len(writes) || !errors.Is(e.err, syscall.ENODATA) || !errors.As(e.err, &failed) || failed.OSD != 2 || failed.Pool != pool {
		t.Errorf("%+v", e)
	}
	if len(all.Value) != len(writes) || all.Err != nil || !errors.Is(absent.Err, syscall.ENODATA) || !errors.Is(behind.Err, rados.ErrSkipped) {
		t.Errorf("%v, %v, %v", all, absent, behind)
	}
	for i, b := range all.Value {
		if int(b) != i {
			t.Errorf("byte %d is %d", i, b)
		}
	}
	canceled, over := context.WithCancel(ctx)
	over()
	told := make(chan error, 2)
	if err := o.Start(canceled, &last, func(_ uint64, err error) { told <- err }); err != nil {
		told <- err
	}
	if err := <-told; !errors.Is(err, context.Canceled) || !errors.Is(err, rados.ErrNotSent) {
		t.Errorf("behind the end of its context: %v", err)
	}
}
