package rados_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// osd is an OSD of ours for one object, in memory: some of its operations, its attributes, and one who watches it.
type osd struct {
	m    *control.Messenger
	addr netip.AddrPort
	c    *cluster

	mu       sync.Mutex
	asked    atomic.Int64     // requests that came
	again    *control.Message // the answer to all requests; nil: each is carried out
	last     *control.Message // the last answer
	request  *captured.Request
	mute     chan struct{} // gets a request that is not answered; nil: all are
	content  []byte        // nil: there is no object
	xattrs   map[string][]byte
	version  uint64
	watcher  *control.Conn
	cookie   uint64
	notifier *control.Conn
	notify   uint64 // its cookie
}

// startOSD has an OSD serve the object of a cluster, which no client has connected to.
func (c *cluster) startOSD(at string) (*osd, error) {
	o := &osd{c: c, xattrs: map[string][]byte{}}
	var err error
	o.m, err = control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "2"}, Nonce: new(uint32), Plane: loop.Config{Cores: 1}})
	if err == nil {
		err = o.m.Start(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool { return m.Type == osdop.TypeOp && o.take(c, m) }})
	}
	if err != nil {
		return nil, err
	}
	c.stop = append(c.stop, func() error { return o.m.Shutdown(context.Background()) })
	addrs, err := o.m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort(at)})
	if err == nil {
		o.addr = addrs[0].AddrPort
	}
	c.osd = o
	return o, err
}

// startObject has a client of such a cluster, and an OSD of ours for its object.
func startObject(t *testing.T) (context.Context, *osd, rados.Object) {
	t.Helper()
	c := startCluster(t)
	o, err := c.startOSD("127.0.0.1:0")
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	p, err := c.dial(ctx, t).Pool(ctx, pool)
	check(t, err)
	c.mu.Lock()
	c.quiet = true // the map stays
	c.mu.Unlock()
	return ctx, o, p.Object(object)
}

// answer has the OSD answer all requests alike, or tell mute of each in place of an answer; nil: neither.
func (o *osd) answer(again *control.Message, mute chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.again, o.mute = again, mute
}

// take carries out MOSDOp: all of its steps or none. A client that waits for 10 s sends MPing, too, which is no request.
func (o *osd) take(conn *control.Conn, m *control.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked.Add(1); o.mute != nil {
		o.mute <- struct{}{}
		return true
	}
	if o.again != nil {
		again := control.NewMessage(o.again.Type, o.again.Front, o.again.Data)
		again.TID, again.Version, again.CompatVersion = m.TID, 8, 2
		_ = conn.Send(again) // who is gone needs none
		return true
	}
	q := captured.ReadRequest(m.Version, m.Front, bytes.Clone(m.Data))
	o.request = q
	var failed syscall.Errno
	before, attrs := o.content, o.xattrs
	for i := range q.Steps {
		if failed == 0 {
			failed = o.carryOut(conn, &q.Steps[i])
			q.Steps[i].Result = -int32(failed)
		}
	}
	if failed != 0 {
		o.content, o.xattrs = before, attrs
	} else if slices.ContainsFunc(q.Steps, func(s captured.Step) bool { return s.Code&0x2000 != 0 && s.Code != osdop.CodeWatch }) {
		o.version++
	}
	answer := control.NewMessage(osdop.TypeOpReply, nil, nil)
	answer.Front, answer.Data = q.Reply(-int32(failed), o.version)
	answer.TID, answer.Version, answer.CompatVersion = m.TID, 8, 2
	o.last = control.NewMessage(answer.Type, bytes.Clone(answer.Front), bytes.Clone(answer.Data))
	_ = conn.Send(answer) // who is gone needs none
	return true
}

func (o *osd) carryOut(conn *control.Conn, s *captured.Step) syscall.Errno {
	at := le.Uint64(s.Args)
	if o.content == nil && s.Code != osdop.CodeWriteFull {
		return syscall.ENOENT
	}
	switch s.Code {
	case osdop.CodeWriteFull:
		o.content = append([]byte{}, s.In...)
	case osdop.CodeWrite:
		o.content = append(bytes.Clone(o.content[:min(at, uint64(len(o.content)))]), s.In...)
	case osdop.CodeAppend:
		o.content = append(bytes.Clone(o.content), s.In...)
	case osdop.CodeRead:
		s.Out = o.content[min(at, uint64(len(o.content))):]
		if n := le.Uint64(s.Args[8:]); n > 0 {
			s.Out = s.Out[:min(n, uint64(len(s.Out)))]
		}
	case osdop.CodeList: // pages of two objects without end
		from := osdop.ReadHObject(wire.NewReader(s.In))
		id, _ := o.c.first.PoolID(pool)
		next := osdop.HObject{Pool: id, Hash: bits.Reverse32(bits.Reverse32(from.Hash) + 1)}
		b, mark := wire.BeginEnvelope(nil, 1, 1)
		s.Out = wire.EndEnvelope(append(le.AppendUint32(next.AppendTo(b), 2), make([]byte, 2*3*4)...), mark)
	case osdop.CodeOmapVals: // pages of two keys without end, empty ones behind "z"
		from := wire.NewReader(s.In).Str()
		if from == "z" {
			s.Out = []byte{0, 0, 0, 0, 1}
			break
		}
		s.Out = le.AppendUint32(nil, 2)
		for _, key := range []string{from + "a", from + "b"} {
			s.Out = wire.AppendString(wire.AppendString(s.Out, key), "")
		}
		s.Out = append(s.Out, 1) // there are more
	case osdop.CodeStat:
		s.Out = append(le.AppendUint64(nil, uint64(len(o.content))), make([]byte, 8)...)
	case osdop.CodeRemove:
		o.content = nil
	case osdop.CodeAssertVer:
		if le.Uint64(s.Args[8:]) != o.version {
			return syscall.ERANGE
		}
	case osdop.CodeGetXattr:
		value, ok := o.xattrs[string(s.In)]
		if s.Out = value; !ok {
			return syscall.ENODATA
		}
	case osdop.CodeSetXattr:
		n := le.Uint32(s.Args)
		attrs := map[string][]byte{string(s.In[:n]): s.In[n:]}
		for name, value := range o.xattrs {
			if name != string(s.In[:n]) {
				attrs[name] = value
			}
		}
		o.xattrs = attrs
	case osdop.CodeWatch:
		o.watcher, o.cookie = conn, at
		if s.Args[16] == osdop.WatchEnd {
			o.watcher = nil
		}
	case osdop.CodeNotify:
		r := wire.NewReader(s.In[8:])
		o.notifier, o.notify = conn, at
		s.Out = le.AppendUint64(nil, 1)
		if o.watcher == nil {
			o.event(conn, captured.WatchNotify(osdop.EventComplete, at, 1, nil, 0, 0), nil)
			break
		}
		o.event(o.watcher, captured.WatchNotify(osdop.EventNotify, o.cookie, 1, r.Blob(), 0, 0), nil)
	case osdop.CodeNotifyAck:
		answer := append(le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, 1), 1), o.cookie), s.In[16:]...)
		o.event(o.notifier, captured.WatchNotify(osdop.EventComplete, o.notify, 1, nil, 0, 0), append(answer, 0, 0, 0, 0))
	default:
		return syscall.EOPNOTSUPP
	}
	return 0
}

// event sends MWatchNotify.
func (o *osd) event(to *control.Conn, front, data []byte) {
	m := control.NewMessage(osdop.TypeWatchNotify, front, data)
	m.Version, m.CompatVersion = 3, 1
	_ = to.Send(m) // who is gone needs none
}

// Start is Operate for who does not wait: calls keep their order, each is told once how it ended, and may start another.
func TestStartTellsEachResultOnce(t *testing.T) {
	ctx, _, o := startObject(t)
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
}

// A read of large data into memory of the caller, alone, among other steps, and where the object ends.
func TestAReadOpFillsTheMemoryOfTheCaller(t *testing.T) {
	ctx, _, o := startObject(t)
	content := bytes.Repeat([]byte("0123456789"), 10_000)
	check(t, o.WriteFull(ctx, content))
	for _, others := range []int{0, 1} {
		for i, offset := range []int{0, 3, len(content) - 5, len(content), 0} {
			var op rados.ReadOp
			into := make([]byte, 50_000*min(4-i, 1)) // the last one asks for no byte
			n := op.ReadInto(uint64(offset), into)
			for range others {
				op.Stat()
			}
			want := content[offset:min(offset+len(into), len(content))]
			if _, err := o.Operate(ctx, &op); err != nil || n.Err != nil || n.Value != len(want) || !bytes.Equal(into[:n.Value], want) {
				t.Errorf("%d steps, from %d: %d bytes of %d, %v, %v", 1+others, offset, n.Value, len(want), n.Err, err)
			}
		}
	}
}

// A write has the snapshots that its pool's view names, the newest first. A removal makes room: it goes where the pool is full, too.
func TestAWriteHasTheSnapshotsAndFlagsThatItNeeds(t *testing.T) {
	ctx, osd, o := startObject(t)
	seen := func() *captured.Request { osd.mu.Lock(); defer osd.mu.Unlock(); return osd.request }
	check(t, o.Pool().WithSnapContext(9, 2, 9, 5).Object(object).WriteFull(ctx, []byte(text)))
	if q := seen(); q.SnapSeq != 9 || !slices.Equal(q.Snaps, []uint64{9, 5, 2}) || q.Flags&osdop.FullForce != 0 {
		t.Errorf("%+v", q)
	}
	check(t, o.Remove(ctx))
	if q := seen(); q.Flags&osdop.FullForce == 0 {
		t.Errorf("%+v", q)
	}
}

// Data beyond PieceSize goes piece by piece, and comes so.
func TestLargeDataGoesInPieces(t *testing.T) {
	ctx, osd, o := startObject(t)
	content := make([]byte, 2*rados.PieceSize+5)
	for i := range content {
		content[i] = byte(i >> 16)
	}
	before := osd.asked.Load()
	check(t, o.WriteFull(ctx, content))
	into := make([]byte, len(content)+9)
	n, err := o.ReadInto(ctx, 0, into)
	all, failed := o.ReadAll(ctx)
	if err != nil || failed != nil || !bytes.Equal(into[:n], content) || !bytes.Equal(all, content) || osd.asked.Load() != before+9 {
		t.Errorf("%d and %d bytes of %d, %v, %v; %d requests", n, len(all), len(content), err, failed, osd.asked.Load()-before)
	}
}

// An answer has what an OSD sends, which knows no bound of ours.
func TestAnAnswerMayBeOfAnySize(t *testing.T) {
	ctx, osd, o := startObject(t)
	check(t, o.WriteFull(ctx, nil))
	size := int(frame.DefaultLimits().Data) + 1
	osd.mu.Lock()
	osd.content = make([]byte, size)
	osd.mu.Unlock()
	var op rados.ReadOp
	all := op.Read(0, 0)
	if _, err := o.Operate(ctx, &op); err != nil || len(all.Value) != size || osd.asked.Load() != 2 {
		t.Errorf("%d bytes of %d, %v; %d requests", len(all.Value), size, err, osd.asked.Load())
	}
}

func elements[T any](all iter.Seq2[T, error]) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, err := range all {
			if !yield(err) {
				return
			}
		}
	}
}

// A list and an omap come page by page. When the context ends, its cause is the last element; a loop that is left has
// nothing asked for any more.
func TestAnIteratorEndsWithItsContextOrItsLoop(t *testing.T) {
	ctx, osd, o := startObject(t)
	check(t, o.WriteFull(ctx, []byte(text)))
	for name, all := range map[string]func(ctx context.Context) iter.Seq[error]{
		"list": func(ctx context.Context) iter.Seq[error] { return elements(o.Pool().Objects(ctx)) },
		"omap": func(ctx context.Context) iter.Seq[error] { return elements(o.Omap(ctx, "", "")) },
	} {
		before := osd.asked.Load()
		for range all(ctx) {
			break
		}
		if _, err := o.Stat(ctx); err != nil || osd.asked.Load() != before+2 {
			t.Errorf("%s: %d requests, want a page and a stat; %v", name, osd.asked.Load()-before, err)
		}
		cause := errors.New("late")
		ending, end := context.WithCancelCause(ctx)
		mute := make(chan struct{}, 1)
		go func() { <-mute; end(cause) }()
		var errs []error
		for err := range all(ending) {
			errs = append(errs, err)
			osd.answer(nil, mute)
		}
		osd.answer(nil, nil)
		if len(errs) != 3 || errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], cause) {
			t.Errorf("%s: %v, want a page, and the cause", name, errs)
		}
	}
}

// An OSD that sends a page again and again would have the caller go through it for ever, in whatever order its keys are.
func TestAnOmapThatDoesNotGoOnIsAnError(t *testing.T) {
	ctx, osd, o := startObject(t)
	check(t, o.WriteFull(ctx, []byte(text)))
	n := 0
	for _, err := range o.Omap(ctx, "z", "") {
		if n++; !errors.Is(err, rados.ErrMessage) {
			t.Errorf("an empty page: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d elements of an empty page that is not the last, want an error", n)
	}
	for _, keys := range []string{"ab", "dc"} {
		osd.answer(nil, nil)
		n := 0
		for _, err := range o.Omap(ctx, "", "") {
			if n++; n == 1 {
				osd.mu.Lock()
				page := osd.last
				osd.mu.Unlock()
				page.Data[8], page.Data[17] = keys[0], keys[1]
				osd.answer(page, nil)
			}
			if errors.Is(err, rados.ErrMessage) {
				break
			}
			if err != nil || n > 4 {
				t.Fatalf("element %d: %v", n, err)
			}
		}
	}
}

// A reader that is cut off says io.ErrUnexpectedEOF, such as the body of an HTTP response: what it had is
// written, and the copy says that it is not whole.
func TestACopyOfAReaderThatIsCutOffFails(t *testing.T) {
	ctx, o, object := startObject(t)
	check(t, object.WriteFull(ctx, nil))
	for _, cut := range []error{nil, io.ErrUnexpectedEOF, errCut} {
		text := []byte("this is the beginning")
		in := io.MultiReader(iotest.HalfReader(bytes.NewReader(text)), iotest.ErrReader(cut))
		if cut == nil {
			in = bytes.NewReader(text)
		}
		n, err := io.Copy(object.File(ctx), in)
		if !errors.Is(err, cut) || n != int64(len(text)) || !bytes.Equal(o.has(), text) {
			t.Errorf("cut off by %v: %d bytes, %v; the object has %q", cut, n, err, o.has())
		}
	}
}

var errCut = fmt.Errorf("cut off: %w", io.EOF)

// has is the content of the object.
func (o *osd) has() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.content
}
