package interop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// useOperations has the effects that doc comments promise, as far as neither librados nor our program has the operation.
func useOperations(t *testing.T, c *cluster, cl *rados.Cluster) {
	ctx := within(t, 5*patience)
	pool, err := cl.Pool(ctx, "data")
	check(t, err)
	for name, test := range map[string]func(context.Context, *testing.T, rados.Pool){
		"content": useContent, "omap": useOmap, "list": useLists, "files": useFiles,
		"pools": func(ctx context.Context, t *testing.T, _ rados.Pool) { usePools(ctx, t, cl) },
	} {
		t.Run(name, func(t *testing.T) { test(ctx, t, pool.WithNamespace(name)) })
	}
	t.Run("replicas", func(t *testing.T) { useReplicas(ctx, t, c) }) // moves the groups of all pools: see settle
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
	operate := func(o rados.Object, op rados.Op) {
		t.Helper()
		_, err := o.Operate(ctx, op)
		check(t, err)
	}
	check(t, o.Create(ctx, true))
	refused(t, o.Create(ctx, true), fs.ErrExist)
	check(t, o.Write(ctx, 4, []byte("456")))
	check(t, o.Append(ctx, []byte("789")))
	var change, rest, copied rados.WriteOp
	change.WriteSame(10, 4, []byte("xy"))
	change.Zero(11, 2)
	change.Zero(11, 0) // an OSD would abort
	operate(o, &change)
	check(t, o.Truncate(ctx, 20))
	want := "\x00\x00\x00\x00456789x\x00\x00y\x00\x00\x00\x00\x00\x00"
	got, err := o.ReadAll(ctx)
	if string(got) != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	var look rados.ReadOp
	whole, sums := look.Checksum(rados.CRC32C, 0, 10, 10, 0), look.Checksum(rados.CRC32C, 0, 0, 20, 10)
	sparse := look.SparseRead(2, 9)
	operate(o, &look)
	if s := sums.Value; len(s) != 2 || s[1] != whole.Value[0] || s[0] == s[1] {
		t.Errorf("%x, of the second half %x", s, whole.Value)
	}
	if s := sparse.Value; len(s.Extents) == 0 || !bytes.Contains(s.Data, []byte("456789x")) {
		t.Errorf("%+v", s)
	}
	copied.CopyFrom(o, 0)
	operate(p.Object("copy"), &copied)
	if got, err = p.Object("copy").ReadAll(ctx); string(got) != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	rest.Zero(15, 100) // to the end: the OSD answers that it truncated
	operate(o, &rest)
	check(t, o.WriteFull(ctx, nil))
	if got, err = o.ReadAll(ctx); len(got) != 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// useOmap reads an omap of more than a page of ours, and of an OSD's.
func useOmap(ctx context.Context, t *testing.T, p rados.Pool) {
	o := p.Object("omap")
	values := map[string][]byte{}
	for i := range 1300 {
		values[fmt.Sprintf("k%04d", i)] = fmt.Append(nil, i)
	}
	check(t, o.SetOmap(ctx, values))
	got, last := map[string][]byte{}, ""
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
	for _, err := range p.Object("absent").Omap(ctx, "", "") {
		refused(t, err, fs.ErrNotExist)
	}
}

// useLists lists objects of all namespaces in parts, each by a goroutine.
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
	got := map[rados.Entry]int{}
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
				if _, ours := want[e]; ours {
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

// useReplicas reads from any OSD that has the object, and from the nearest one. Each client tells by its connections where it has read.
func useReplicas(ctx context.Context, t *testing.T, c *cluster) {
	var all []wire.Addr
	for i := range 3 {
		c.ceph("osd", "crush", "set", fmt.Sprintf("osd.%d", i), "1.0", "root=default", fmt.Sprintf("host=host%d", i))
		all = append(all, c.osdAddr(i))
	}
	c.createPool("replicas", "8 8 replicated", "size 3")
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

// usePools makes pools, and snapshots of them. Those of a pool are of one kind.
func usePools(ctx context.Context, t *testing.T, cl *rados.Cluster) {
	p, err := cl.CreatePool(ctx, "managed")
	check(t, err)
	o := p.Object("o")
	check(t, o.WriteFull(ctx, []byte("before")))
	id, err := p.CreateSelfManagedSnap(ctx)
	check(t, err)
	check(t, p.WithSnapContext(id, id).Object("o").WriteFull(ctx, []byte("now")))
	clones, newest, err := o.Clones(ctx)
	if err != nil || newest != id || len(clones) != 2 || clones[0].ID != id || clones[0].Size != 6 {
		t.Errorf("%+v %d %v", clones, newest, err)
	}
	if err := p.CreateSnap(ctx, "other"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("both kinds of snapshots: %v", err)
	}
	check(t, p.RemoveSelfManagedSnap(ctx, id))
	names, err := cl.Pools(ctx)
	if err != nil || !slices.Contains(names, "managed") {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := cl.CreatePool(ctx, "managed"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a pool that there is: %v", err)
	}
	if err := p.Delete(ctx); !errors.Is(err, syscall.EPERM) { // the monitors do not allow it
		t.Errorf("a pool is deleted: %v", err)
	}
}
