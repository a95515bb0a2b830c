package interop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Every operation on objects has the effect on a real cluster that its doc comment promises.
// Matrix: IN-01
func TestOperationsOnObjectsDoWhatTheySay(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 3})
	cl := dialCluster(t, c, "msgr2.1", uring.Auto)
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	pool, err := cl.Pool(ctx, "data")
	check(t, err)
	for name, test := range map[string]func(context.Context, *testing.T, rados.Pool){
		"content": useContent, "attributes": useAttributes, "classes": func(ctx context.Context, t *testing.T, p rados.Pool) { useClasses(ctx, t, p, cl.InstanceID()) }, "list": useLists,
		"files": useFiles, "watch": useWatch, "snapshots": func(ctx context.Context, t *testing.T, _ rados.Pool) { useSnapshots(ctx, t, cl) },
		"replicas": func(ctx context.Context, t *testing.T, _ rados.Pool) { useReplicas(ctx, t, c) },
	} {
		t.Run(name, func(t *testing.T) { test(ctx, t, pool.WithNamespace(name)) })
	}
}

// refused checks that an operation failed for a reason, and that nothing else is said of it.
func refused(t *testing.T, err error, why error) {
	t.Helper()
	var e *rados.Error
	if !errors.Is(err, why) || !errors.As(err, &e) || !errors.Is(err, rados.ErrRefused) || e.OSD < 0 || e.Pool != "data" {
		t.Errorf("%v (%+v), want %v", err, e, why)
	}
}

func useContent(ctx context.Context, t *testing.T, p rados.Pool) {
	o := p.Object("content")
	refused(t, o.Remove(ctx), fs.ErrNotExist)
	check(t, o.Create(ctx, true))
	refused(t, o.Create(ctx, true), fs.ErrExist)
	check(t, o.Write(ctx, 4, []byte("456")))
	check(t, o.Append(ctx, []byte("789")))
	check(t, o.WriteSame(ctx, 10, 4, []byte("xy")))
	check(t, o.Zero(ctx, 11, 2))
	check(t, o.Zero(ctx, 11, 0)) // an OSD would abort
	check(t, o.Truncate(ctx, 20))
	want := "\x00\x00\x00\x00456789x\x00\x00y\x00\x00\x00\x00\x00\x00"
	got, err := o.ReadAll(ctx)
	if string(got) != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = o.Read(ctx, 5, 3); string(got) != "567" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := o.Stat(ctx); err != nil || info.Size != 20 || time.Since(info.ModTime).Abs() > time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
	sums, err := o.Checksum(ctx, rados.CRC32C, 0xffffffff, 0, 20, 10)
	table := crc32.MakeTable(crc32.Castagnoli)
	if err != nil || len(sums) != 2 || uint32(sums[1]) != ^crc32.Checksum([]byte(want[10:]), table) {
		t.Errorf("%x, %v", sums, err)
	}
	sparse, err := o.SparseRead(ctx, 0, 20)
	if err != nil || len(sparse.Extents) == 0 || !strings.Contains(string(sparse.Data), "456789x") {
		t.Errorf("%+v, %v", sparse, err)
	}
	check(t, p.Object("copy").CopyFrom(ctx, o))
	if got, err = p.Object("copy").ReadAll(ctx); string(got) != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	check(t, o.Zero(ctx, 15, 100)) // to the end: the OSD answers that it truncated
	check(t, o.WriteFull(ctx, nil))
	if got, err = o.ReadAll(ctx); len(got) != 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	check(t, o.Remove(ctx))
	_, err = o.ReadAll(ctx)
	refused(t, err, fs.ErrNotExist)
	there := p.WithLocator("key").Object("located")
	check(t, there.WriteFull(ctx, []byte("by its key")))
	if got, err = there.ReadAll(ctx); string(got) != "by its key" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func useAttributes(ctx context.Context, t *testing.T, p rados.Pool) {
	o := p.Object("attributes")
	check(t, o.SetXattr(ctx, "a", []byte{0, 1}))
	check(t, o.SetXattr(ctx, "b", nil))
	check(t, o.RemoveXattr(ctx, "b"))
	if all, err := o.Xattrs(ctx); err != nil || len(all) != 1 || string(all["a"]) != "\x00\x01" {
		t.Errorf("%q, %v", all, err)
	}
	values := map[string][]byte{}
	for i := range 1300 { // more than a page, and than an OSD's
		values[fmt.Sprintf("k%04d", i)] = fmt.Append(nil, i)
	}
	check(t, o.SetOmap(ctx, values))
	check(t, o.RemoveOmap(ctx, "k0007", "k1200"))
	delete(values, "k0007")
	delete(values, "k1200")
	got := map[string][]byte{}
	last := ""
	for pair, err := range o.Omap(ctx, "", "k") {
		check(t, err)
		if pair.Key <= last {
			t.Errorf("%s behind %s", pair.Key, last)
		}
		got[pair.Key], last = pair.Value, pair.Key
	}
	if !maps.EqualFunc(got, values, bytes.Equal) {
		t.Errorf("%d values, want %d", len(got), len(values))
	}
	var w rados.WriteOp
	w.RemoveOmapRange("k0001", "k1299")
	w.SetOmapHeader([]byte("header"))
	_, err := o.Operate(ctx, &w)
	check(t, err)
	var r rados.ReadOp
	header, keys, some := r.OmapHeader(), r.OmapKeys("", 10), r.OmapByKeys("k0000", "k0001")
	_, err = o.Operate(ctx, &r)
	check(t, err)
	if string(header.Value) != "header" || len(keys.Value.Pairs) != 2 || keys.Value.More || len(some.Value) != 1 {
		t.Errorf("%q %+v %q", header.Value, keys.Value, some.Value)
	}
	check(t, o.ClearOmap(ctx))
	for pair, err := range o.Omap(ctx, "", "") {
		t.Errorf("%+v, %v in an empty omap", pair, err)
	}
	for _, err := range p.Object("absent").Omap(ctx, "", "") {
		refused(t, err, fs.ErrNotExist)
	}
}

func useClasses(ctx context.Context, t *testing.T, p rados.Pool, number uint64) {
	o := p.Object("classes")
	check(t, o.Create(ctx, true))
	l := rados.Lock{Name: "l", Cookie: "1", Description: "of a test", Duration: time.Hour}
	check(t, o.Lock(ctx, l))
	refused(t, o.Lock(ctx, l), fs.ErrExist)
	other := l
	other.Cookie = "2"
	refused(t, o.Lock(ctx, other), syscall.EBUSY)
	l.Renew = true
	check(t, o.Lock(ctx, l))
	lockers, shared, tag, err := o.Lockers(ctx, "l")
	if err != nil || len(lockers) != 1 || shared || tag != "" || lockers[0].Cookie != "1" || lockers[0].Description != "of a test" ||
		time.Until(lockers[0].Expires) < time.Minute || lockers[0].Client != int64(number) {
		t.Fatalf("%+v %v %q %v", lockers, shared, tag, err)
	}
	check(t, o.BreakLock(ctx, "l", lockers[0]))
	refused(t, o.Unlock(ctx, "l", "1"), fs.ErrNotExist)
	for _, cookie := range []string{"1", "2"} {
		check(t, o.Lock(ctx, rados.Lock{Name: "s", Cookie: cookie, Shared: true, Tag: "t"}))
	}
	if lockers, shared, tag, err = o.Lockers(ctx, "s"); len(lockers) != 2 || !shared || tag != "t" || err != nil {
		t.Errorf("%+v %v %q %v", lockers, shared, tag, err)
	}
	check(t, o.Unlock(ctx, "s", "1"))
	check(t, o.Unlock(ctx, "s", "2"))
	if names, err := o.Locks(ctx); err != nil || !slices.Equal(names, []string{"l", "s"}) { // free ones, too
		t.Errorf("%q, %v", names, err)
	}
}

func useLists(ctx context.Context, t *testing.T, p rados.Pool) {
	want := map[rados.Entry]int{}
	for i := range 200 {
		e := rados.Entry{Namespace: fmt.Sprint("list", i%3), Name: fmt.Sprint("o", i)}
		if i%10 == 0 {
			e.Locator = "key"
		}
		want[e] = 1
		check(t, p.WithNamespace(e.Namespace).WithLocator(e.Locator).Object(e.Name).WriteFull(ctx, nil))
	}
	ours := func(e rados.Entry) bool { return strings.HasPrefix(e.Namespace, "list") }
	got := map[rados.Entry]int{}
	for e, err := range p.WithNamespace(rados.AllNamespaces).Objects(ctx) {
		if check(t, err); ours(e) {
			got[e]++
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
	clear(got)
	var mu sync.Mutex
	var parts sync.WaitGroup
	cursors := p.Cursors(7)
	for i := range 7 {
		parts.Go(func() {
			for e, err := range p.WithNamespace(rados.AllNamespaces).List(ctx, cursors[i], cursors[i+1]) {
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if ours(e) {
					got[e]++
				}
				mu.Unlock()
			}
		})
	}
	parts.Wait()
	if !maps.Equal(got, want) {
		t.Errorf("7 parts: %d objects, want %d, each once", len(got), len(want))
	}
	n := 0
	for e, err := range p.WithNamespace("list1").Objects(ctx) {
		if check(t, err); e.Namespace != "list1" {
			t.Errorf("%+v", e)
		}
		n++
	}
	if n != 67 {
		t.Errorf("%d objects in one namespace", n)
	}
}

func useFiles(ctx context.Context, t *testing.T, p rados.Pool) {
	o := p.Object("file")
	content := bytes.Repeat([]byte("0123456789"), 1<<20)
	n, err := io.Copy(o.File(ctx), io.MultiReader(bytes.NewReader(content[:999]), bytes.NewReader(content[999:])))
	if err != nil || n != int64(len(content)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	got, err := io.ReadAll(io.NewSectionReader(o.File(ctx), 5, 1<<20))
	if err != nil || !bytes.Equal(got, content[5:][:1<<20]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	f := o.File(ctx)
	if at, err := f.Seek(-3, io.SeekEnd); err != nil || at != int64(len(content))-3 {
		t.Errorf("%d, %v", at, err)
	}
	if got, err = io.ReadAll(f); string(got) != "789" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := f.ReadAt(make([]byte, 8), -1); err == nil {
		t.Error("a negative offset: no error")
	}
}

func useWatch(ctx context.Context, t *testing.T, p rados.Pool) {
	o := p.Object("watched")
	if _, err := o.Watch(ctx, time.Minute, rados.Handler{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent object: %v", err)
	}
	check(t, o.Create(ctx, true))
	lost := make(chan error, 1)
	w, err := o.Watch(ctx, time.Minute, rados.Handler{
		Notified: func(n rados.Notification) []byte { return append([]byte("got "), n.Payload...) },
		Lost:     func(err error) { lost <- err },
	})
	check(t, err)
	if who, err := o.Watchers(ctx); err != nil || len(who) != 1 || who[0].Cookie != w.Cookie() || who[0].Timeout != time.Minute {
		t.Errorf("%+v, %v", who, err)
	}
	answers, err := o.Notify(ctx, []byte("it"), time.Minute)
	if err != nil || len(answers) != 1 || string(answers[0].Data) != "got it" || answers[0].Missed {
		t.Errorf("%+v, %v", answers, err)
	}
	check(t, o.Remove(ctx))
	if err := <-lost; !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("a removed object: %v", err)
	}
}

// useReplicas reads from any OSD that has the object, and from the nearest one. Each client tells by its connections where it has read.
func useReplicas(ctx context.Context, t *testing.T, c *cluster) {
	c.createPool("replicas", "8 8 replicated", "size 3")
	var all []wire.Addr
	for i := range 3 {
		c.ceph("osd", "crush", "set", fmt.Sprintf("osd.%d", i), "1.0", "root=default", fmt.Sprintf("host=host%d", i))
		all = append(all, c.osdAddr(i))
	}
	writer := dialCluster(t, c, "msgr2.1", uring.Auto)
	check(t, writer.WaitForLatestOSDMap(ctx))
	p, err := writer.Pool(ctx, "replicas")
	check(t, err)
	// With the writes behind it in its group, replicas learn that the first one is complete; before they send reads to the primary.
	for _, name := range []string{"o", "behind", "behind", "behind", "behind"} {
		check(t, p.WithLocator("group").Object(name).WriteFull(ctx, []byte("everywhere")))
	}
	readers := func(flags rados.Flags, location ...string) (at []wire.Addr) {
		cl := dialCluster(t, c, "msgr2.1", uring.Auto, func(cfg *rados.Config) { cfg.Location = location })
		p, err := cl.Pool(ctx, "replicas")
		check(t, err)
		for range 40 {
			if got, err := p.WithFlags(flags).WithLocator("group").Object("o").Read(ctx, 0, 100); string(got) != "everywhere" || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
		}
		for _, conn := range cl.Messenger().Conns() {
			if conn.Info().PeerType == wire.OSD {
				at = append(at, conn.Info().PeerAddrs.V2())
			}
		}
		return at
	}
	for i, want := range all {
		var at []wire.Addr
		if !await(patience, func() bool {
			at = readers(rados.LocalizeReads, fmt.Sprintf("host=host%d", i), "root=default")
			return slices.Equal(at, []wire.Addr{want})
		}) {
			t.Errorf("the nearest is osd.%d at %v, read at %v", i, want, at)
		}
	}
	if spread, one := readers(rados.BalanceReads), readers(0); len(spread) != 3 || len(one) != 1 {
		t.Errorf("read at %v, want all of %v; and at %v, want the primary alone", spread, all, one)
	}
}

func useSnapshots(ctx context.Context, t *testing.T, cl *rados.Cluster) {
	p, err := cl.CreatePool(ctx, "snapped")
	check(t, err)
	o := p.Object("o")
	check(t, o.WriteFull(ctx, []byte("before")))
	check(t, p.CreateSnap(ctx, "one"))
	check(t, o.WriteFull(ctx, []byte("after")))
	snap, err := p.LookupSnap(ctx, "one")
	check(t, err)
	if got, err := p.WithSnap(snap.ID).Object("o").ReadAll(ctx); string(got) != "before" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := p.WithSnap(snap.ID).Object("o").WriteFull(ctx, []byte("never")); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a write to a snapshot: %v", err)
	}
	clones, newest, err := o.Clones(ctx)
	if err != nil || newest != snap.ID || len(clones) != 2 || clones[0].ID != snap.ID || clones[0].Size != 6 {
		t.Errorf("%+v %d %v", clones, newest, err)
	}
	check(t, o.Rollback(ctx, snap.ID))
	if got, err := o.ReadAll(ctx); string(got) != "before" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := p.CreateSelfManagedSnap(ctx); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("both kinds of snapshots: %v", err)
	}
	check(t, p.RemoveSnap(ctx, "one"))
	if list, err := p.Snaps(ctx); len(list) != 0 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}

	p, err = cl.CreatePool(ctx, "managed")
	check(t, err)
	var ids []uint64
	for i := range 3 {
		check(t, p.WithSnapContext(slices.Max(append(ids, 0)), ids...).Object("o").WriteFull(ctx, fmt.Append(nil, "state ", i)))
		id, err := p.CreateSelfManagedSnap(ctx)
		check(t, err)
		ids = append(ids, id)
	}
	check(t, p.WithSnapContext(ids[2], ids...).Object("o").WriteFull(ctx, []byte("now")))
	for i, id := range ids {
		if got, err := p.WithSnap(id).Object("o").ReadAll(ctx); string(got) != fmt.Sprint("state ", i) || err != nil {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
	check(t, p.RemoveSelfManagedSnap(ctx, ids[0]))
	names, err := cl.Pools(ctx)
	if err != nil || !slices.Contains(names, "managed") {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := cl.CreatePool(ctx, "managed"); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Errorf("a pool that there is: %v", err)
	}
	if err := p.Delete(ctx); !errors.Is(err, syscall.EPERM) { // the monitors do not allow it
		t.Errorf("a pool is deleted: %v", err)
	}
}
