package rados

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

const wires = "../internal/osdop/testdata/wire-"

var files = []string{wires + "reef.json.gz", wires + "tentacle.json.gz", wires + "extra.json.gz"}

// made are the operations of some labels, as this package makes them; nil: with numbers of the run.
func made() map[string][]osdop.Op {
	text := func(s string) []byte { return []byte(s) }
	r := func(f func(o *ReadOp)) []osdop.Op { var op ReadOp; f(&op); return op.ops }
	w := func(f func(o *WriteOp)) []osdop.Op { var op WriteOp; f(&op); return op.ops }
	lock := func(l Lock) []osdop.Op { return r(func(o *ReadOp) { o.Exec("lock", "lock", l.input()) }) }
	return map[string][]osdop.Op{
		"create-excl": w(func(o *WriteOp) { o.Create(true) }), "write": w(func(o *WriteOp) { o.Write(5, text("hello world")) }),
		"write_full": w(func(o *WriteOp) { o.WriteFull(text("0123456789abcdef")) }), "append": w(func(o *WriteOp) { o.Append(text("APPENDED")) }),
		"writesame": w(func(o *WriteOp) { o.WriteSame(32, 8, text("xy")) }), "truncate": w(func(o *WriteOp) { o.Truncate(100) }),
		"zero": w(func(o *WriteOp) { o.Zero(4, 6) }), "stat": r(func(o *ReadOp) { o.Stat() }), "read": r(func(o *ReadOp) { o.Read(0, 64) }),
		"checksum-crc32c": r(func(o *ReadOp) { o.Checksum(CRC32C, 0xffffffff, 0, 64, 16) }), "checksum-xxh64": r(func(o *ReadOp) { o.Checksum(XXH64, 0, 0, 64, 0) }),
		"checksum-xxh32": r(func(o *ReadOp) { o.Checksum(XXH32, 0, 0, 64, 0) }), "cmpext-ok": r(func(o *ReadOp) { o.CompareExtent(0, text("0123")) }),
		"setxattr": w(func(o *WriteOp) { o.SetXattr("color", text("blue")) }), "getxattr": r(func(o *ReadOp) { o.Xattr("color") }),
		"getxattrs": r(func(o *ReadOp) { o.Xattrs() }), "cmpxattr-ok": r(func(o *ReadOp) { o.CompareXattr("color", Equal, text("blue")) }),
		"rmxattr":       w(func(o *WriteOp) { o.RemoveXattr("n") }),
		"omap-set":      w(func(o *WriteOp) { o.SetOmap(map[string][]byte{"k1": text("v1"), "k2": text("v\x00two"), "k3": nil}) }),
		"omap-get-vals": r(func(o *ReadOp) { o.Omap("", "", 2) }), "omap-get-vals-prefix": r(func(o *ReadOp) { o.Omap("k1", "k", 100) }),
		"omap-get-keys": r(func(o *ReadOp) { o.OmapKeys("", 100) }), "omap-get-vals-by-keys": r(func(o *ReadOp) { o.OmapByKeys("k1", "k9") }),
		"omap-cmp-ok": r(func(o *ReadOp) { o.CompareOmap("k1", Equal, text("v1")) }), "omap-rm-keys": w(func(o *WriteOp) { o.RemoveOmap("k1") }),
		"omap-rm-range": w(func(o *WriteOp) { o.RemoveOmapRange("k2", "k3") }), "omap-clear": w(func(o *WriteOp) { o.ClearOmap() }),
		"cli-omapheader":       w(func(o *WriteOp) { o.SetOmapHeader(text("HEADER")) }),
		"assert-exists-enoent": w(func(o *WriteOp) { o.AssertExists(); o.Write(0, text("multi")) }),
		"assert-version-ok":    r(func(o *ReadOp) { o.AssertVersion(42); o.Read(0, 8) }),
		"multi": w(func(o *WriteOp) {
			o.AssertExists()
			o.AllocHint(4096, 4096)
			o.ops[1].Args[16] = 9 // flags, which we do not set
			o.SetXattr("a", text("b"))
			o.Write(0, text("multi"))
		}),
		"exec-hello":       r(func(o *ReadOp) { o.Exec("hello", "say_hello", text("spec")) }),
		"lock-exclusive":   lock(Lock{Name: "L", Cookie: "cookie1", Description: "desc", Duration: 30 * time.Second}),
		"lock-shared":      lock(Lock{Name: "L2", Shared: true, Cookie: "c1", Tag: "tag", Description: "desc", Renew: true}),
		"listwatchers-cli": r(func(o *ReadOp) { o.Watchers() }), "listsnaps-cli": r(func(o *ReadOp) { o.clones() }),
		"remove": w(func(o *WriteOp) { o.Remove() }), "snap-rollback": nil, "break-lock": nil, "x-copy-from-1": nil, "x-copy-from-2": nil,
		"list-objects": nil, "list-objects-all-ns": nil, "list-cursor": nil, "x-sparse-read-1": nil, "x-pgnls-1": nil,
	}
}

// numbered makes an operation again that has numbers of the run.
func numbered(s *captured.Step) []osdop.Op {
	var o WriteOp
	r := wire.NewReader(s.In)
	switch s.Code {
	case osdop.CodeRollback:
		o.Rollback(le.Uint64(s.Args))
	case osdop.CodeSparseRead:
		var read ReadOp
		read.SparseRead(le.Uint64(s.Args), le.Uint64(s.Args[8:]))
		copy(read.ops[0].Args[16:], s.Args[16:]) // a truncation, which only file systems announce
		return read.ops
	case osdop.CodeCopyFrom:
		name := r.Str()
		r.Envelope(6, func(_ uint8, r *wire.Reader) {
			p := Pool{id: r.S64(), snap: le.Uint64(s.Args)}
			r.U32()
			p.key, p.ns = r.Str(), r.Str()
			o.CopyFrom(p.Object(name), le.Uint64(s.Args[8:]))
		})
		copy(o.ops[0].Args[17:], s.Args[17:21]) // advice about caches, which we do not give
	case osdop.CodeList:
		from := osdop.ReadHObject(r)
		o.add(listOp(&from, le.Uint64(s.Args), le.Uint32(s.Args[8:])))
	case osdop.CodeCall:
		o.Exec(string(s.In[:4]), string(s.In[4:14]), s.In[14:])
	}
	return o.ops
}

// The operations are those of librados, byte for byte.
func TestStepsAreThoseOfLibrados(t *testing.T) {
	left := made()
	for _, file := range files {
		for _, c := range captured.Conversations(t, file) {
			steps, ok := made()[c.Label]
			for _, m := range c.Messages {
				if !ok || m.Type != osdop.TypeOp {
					continue
				}
				delete(left, c.Label)
				ours, q := steps, captured.ReadRequest(m.Version, m.Front, m.Data)
				if ok = steps == nil; ok { // of the others the first request counts
					ours = numbered(&q.Steps[0])
				}
				for i, s := range q.Steps {
					if len(ours) != len(q.Steps) || ours[i].Code != s.Code || ours[i].Flags != s.Flags || !bytes.Equal(ours[i].Args[:], s.Args) || !bytes.Equal(ours[i].Data, s.In) {
						t.Errorf("%s, %s: %+v, want %+v", file, c.Label, ours, q.Steps)
					}
				}
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("not captured: %v", slices.Collect(maps.Keys(left)))
	}
}

// result has a step take an output.
func resultOf[T any](out []byte, step func(o *ReadOp) *Result[T]) (T, error) {
	var op ReadOp
	r := step(&op)
	op.ops[0].Out = out
	op.conclude(&osdop.Reply{}, nil)
	return r.Value, r.Err
}

// The outputs that a real OSD sent have what the operations before had put there.
func TestOutputsOfARealOSD(t *testing.T) {
	outs := map[string][][]byte{}
	for _, file := range files[:2] {
		for _, c := range captured.Conversations(t, file) {
			for _, m := range c.Messages {
				if m.Type == osdop.TypeOpReply {
					outs[c.Label] = append(outs[c.Label], m.Data)
				}
			}
		}
	}
	last := func(label string) []byte { return outs[label][len(outs[label])-1] }
	if i, err := resultOf(last("stat"), (*ReadOp).Stat); err != nil || i.Size != 100 || i.ModTime.Before(time.Unix(1<<30, 0)) {
		t.Errorf("stat: %+v %v", i, err)
	}
	sums := func(out []byte, kind ChecksumKind) ([]uint64, error) {
		return resultOf(out, func(o *ReadOp) *Result[[]uint64] { return o.Checksum(kind, 0, 0, 0, 0) })
	}
	if s, err := sums(nil, CRC32C); err != nil || len(s) != 0 { // of a range behind the end
		t.Errorf("%x, %v", s, err)
	}
	if s, err := sums(last("checksum-crc32c"), CRC32C); err != nil || len(s) != 4 || s[0] == 0 {
		t.Errorf("crc32c: %x %v", s, err)
	}
	if s, err := sums(last("checksum-xxh64"), XXH64); err != nil || len(s) != 1 || s[0]>>32 == 0 {
		t.Errorf("xxh64: %x %v", s, err)
	}
	if m, err := resultOf(last("getxattrs"), (*ReadOp).Xattrs); err != nil || string(m["color"]) != "blue" || string(m["n"]) != "42" || len(m) != 2 {
		t.Errorf("xattrs: %q %v", m, err)
	}
	p, err := resultOf(last("omap-get-vals"), func(o *ReadOp) *Result[Page] { return o.Omap("", "", 2) })
	if err != nil || len(p.Pairs) != 2 || !p.More || p.Pairs[1].Key != "k2" || string(p.Pairs[1].Value) != "v\x00two" {
		t.Errorf("omap values: %+v %v", p, err)
	}
	p, err = resultOf(last("omap-get-keys"), func(o *ReadOp) *Result[Page] { return o.OmapKeys("", 100) })
	if err != nil || p.More || len(p.Pairs) != 3 || p.Pairs[0].Key != "k1" || p.Pairs[2].Key != "k3" {
		t.Errorf("omap keys: %+v %v", p, err)
	}
	w, err := resultOf(last("listwatchers-cli"), (*ReadOp).Watchers)
	if err != nil || len(w) != 1 || w[0].Client != wire.Client || w[0].Timeout != 20*time.Second || w[0].Addr.IsBlank() {
		t.Errorf("watchers: %+v %v", w, err)
	}
	s, err := resultOf(last("listsnaps-cli"), (*ReadOp).clones)
	if err != nil || len(s.list) != 2 || s.list[0].ID != s.newest || s.list[1].ID != osdop.Head || !slices.Equal(s.list[0].Snaps, []uint64{s.newest}) {
		t.Errorf("snapshots: %+v %v", s, err)
	}
	names := map[Entry]int{}
	for _, out := range outs["list-objects-all-ns"] {
		p, err := readPage(out)
		if err != nil || p.next.Max != (p.next.Pool != 1) {
			t.Errorf("list: %+v %v", p.next, err)
		}
		for _, e := range p.entries {
			names[e]++
		}
	}
	if len(names) != 4 || names[Entry{"ns1", "obj2", "key1"}] != 2 || names[Entry{"", "obj1", ""}] != 2 {
		t.Errorf("list: %v", slices.Collect(maps.Keys(names)))
	}
}

// A write has its time and the snapshot context of its pool, without which OSDs keep no snapshots; a read has the
// snapshot that it sees. Nothing is left of an earlier use of the steps.
func TestARequestHasTheFlagsAndSnapshotsOfItsPool(t *testing.T) {
	o := Pool{id: 3, ns: "ns", key: "near"}.WithFlags(FullTry).WithFlags(FullForce).WithSnapContext(7, 3, 7, 5).WithSnap(5).Object("name")
	var op WriteOp
	op.SetTime(time.Unix(1e9, 0))
	op.Remove()
	op.ops[0].Result, op.ops[0].Out = -5, []byte("old")
	target, flags := osdop.Object{Pool: 3, Namespace: "ns", Locator: "near", Name: "name"}, uint32(FullTry|FullForce)
	for _, c := range []struct{ got, want osdop.Request }{
		{o.request(false), osdop.Request{Target: target, Flags: flags | osdop.FlagRead, Snap: 5}},
		{o.compound(&op), osdop.Request{Target: target, Flags: flags | osdop.FlagWrite, Snap: 5, SnapSeq: 7, Snaps: []uint64{7, 5, 3}, MTime: time.Unix(1e9, 0)}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("got  %+v\nwant %+v", c.got, c.want)
		}
	}
	if op.ops[0].Result != 0 || op.ops[0].Out != nil {
		t.Errorf("%+v", op.ops[0])
	}
	if age := time.Since(o.request(true).MTime); age < 0 || age > time.Minute {
		t.Errorf("a write without a time is %v old", age)
	}
}

func TestASparseReadHasTheBytesOfItsExtents(t *testing.T) {
	sparse := func(o *ReadOp) *Result[Sparse] { return o.SparseRead(0, 1) }
	for _, c := range captured.Conversations(t, files[2]) {
		if !strings.HasPrefix(c.Label, "x-sparse-read") {
			continue
		}
		out := c.Messages[len(c.Messages)-1].Data
		s, err := resultOf(out, sparse)
		size := uint64(0)
		for _, e := range s.Extents {
			size += e.Length
		}
		if err != nil || size != uint64(len(s.Data)) || size == 0 {
			t.Errorf("%s: %+v, %d bytes, %v", c.Label, s.Extents, len(s.Data), err)
		}
		le.PutUint64(out[12:], 1<<40)
		if _, err := resultOf(out, sparse); !errors.Is(err, ErrMessage) {
			t.Errorf("an extent beyond the data: %v", err)
		}
	}
	twice := append(le.AppendUint64(le.AppendUint32(nil, 2), 0), 8, 0, 0, 0, 0, 0, 0, 0)
	twice = wire.AppendString(append(twice, twice[4:]...), "8 bytes!")
	if s, err := resultOf(twice, sparse); !errors.Is(err, ErrMessage) {
		t.Errorf("two extents of the same bytes: %+v, %v", s, err)
	}
}

func FuzzOutputs(f *testing.F) {
	for _, file := range files {
		for _, c := range captured.Conversations(f, file) {
			for _, m := range c.Messages {
				if m.Type == osdop.TypeOpReply {
					f.Add([]byte(m.Data))
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var op ReadOp
		op.Stat()
		op.Checksum(CRC32C, 0, 0, 0, 0)
		op.Xattrs()
		op.Omap("", "", 1)
		op.OmapKeys("", 1)
		op.OmapByKeys()
		op.Watchers()
		op.clones()
		sparse := op.SparseRead(0, 1)
		for i := range op.ops {
			op.ops[i].Out = p
		}
		op.conclude(&osdop.Reply{}, nil)
		_, _ = readPage(p)
		_, _ = readPoolReply(p)
		for _, e := range sparse.Value.Extents {
			sparse.Value.Data = sparse.Value.Data[e.Length:]
		}
	})
}
