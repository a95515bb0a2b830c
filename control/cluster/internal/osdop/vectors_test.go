package osdop

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// hexBytes are bytes that stand in JSON as hexadecimal digits.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// conversation are messages between librados and a real cluster, in one operation of a user.
type conversation struct {
	Label    string
	Ret      *int32
	Messages []struct {
		Dir         string
		Type        uint16
		Version     uint16
		Compat      uint16
		TID         uint64
		Front, Data hexBytes
	}
}

func readCaptured(t testing.TB, name string) (list []conversation) {
	t.Helper()
	if err := json.Unmarshal(captured.Unzip(t, "testdata/"+name+".json.gz"), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

var files = []string{"wire-reef", "wire-tentacle", "wire-extra"}

const digits = "0123456789abcdef"

// section is an envelope with strings and bytes, as class lock takes it.
func section(parts ...any) []byte {
	b, mark := wire.BeginEnvelope(nil, 1, 1)
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = wire.AppendString(b, p)
		case []byte:
			b = append(b, p...)
		}
	}
	return wire.EndEnvelope(b, mark)
}

// ours are the operations of each label, as this package makes them. A nil list is not of a client.
func ours() map[string][][]Op {
	one := func(ops ...Op) [][]Op { return [][]Op{ops} }
	bin := func(b ...byte) []byte { return b }
	text := func(s string) []byte { return []byte(s) }
	noTime := make([]byte, 8)
	return map[string][][]Op{
		"create-excl": one(Create(true)), "create-excl-exists": one(Create(true)),
		"write": one(Write(5, text("hello world"))), "write_full": one(WriteFull(text(digits))),
		"append": one(Append(text("APPENDED"))), "writesame": one(WriteSame(32, 8, text("xy"))),
		"truncate": one(Truncate(100)), "zero": one(Zero(4, 6)), "stat": one(Stat()), "stat-enoent": one(Stat()),
		"read": one(Read(0, 64)), "read-past-end": one(Read(90, 64)), "read-enoent": one(Read(0, 64)),
		"checksum-crc32c": one(Checksum(CRC32C, 0xffffffff, 0, 64, 16)), "checksum-xxh64": one(Checksum(XXH64, 0, 0, 64, 0)),
		"checksum-xxh32": one(Checksum(XXH32, 0, 0, 64, 0)),
		"cmpext-ok":      one(CompareExtent(0, text("0123"))), "cmpext-mismatch": one(CompareExtent(0, text("01x3"))),
		"setxattr": one(SetXattr("color", text("blue"))), "setxattr2": one(SetXattr("n", text("42"))),
		"getxattr": one(GetXattr("color")), "getxattr-enodata": one(GetXattr("nope")), "getxattrs": one(GetXattrs()),
		"cmpxattr-ok": one(CompareXattr("color", Equal, text("blue"))), "cmpxattr-fail": one(CompareXattr("color", Equal, text("red"))),
		"rmxattr":       one(RemoveXattr("n")),
		"omap-set":      one(OmapSet(map[string][]byte{"k1": text("v1"), "k2": text("v\x00two"), "k3": nil})),
		"omap-get-vals": one(OmapVals("", "", 2)), "omap-get-vals-prefix": one(OmapVals("k1", "k", 100)),
		"omap-get-keys": one(OmapKeys("", 100)), "omap-get-vals-by-keys": one(OmapByKeys([]string{"k1", "k9"})),
		"omap-cmp-ok": one(OmapCompare("k1", Equal, text("v1"))), "omap-cmp-fail": one(OmapCompare("k1", Equal, text("zz"))),
		"omap-rm-keys": one(OmapRemove([]string{"k1"})), "omap-rm-range": one(OmapRemoveRange("k2", "k3")), "omap-clear": one(OmapClear()),
		"multi":                one(Stat(), AllocHint(4096, 4096, 9), SetXattr("a", text("b")), Write(0, text("multi"))),
		"assert-exists-enoent": one(Stat(), Write(0, text("multi"))), "assert-version-ok": one(AssertVersion(42), Read(0, 8)),
		"assert-version-too-old": one(AssertVersion(1)), "assert-version-future": one(AssertVersion(1_000_000)),
		"read-balanced": {{Read(0, 8)}, {Read(0, 8)}},
		"exec-hello":    one(Call("hello", "say_hello", text("spec"))), "exec-unknown": one(Call("hello", "nomethod", nil)),
		"lock-exclusive":      one(Call("lock", "lock", section("L", bin(1), "cookie1", "", "desc", bin(30, 0, 0, 0, 0, 0, 0, 0), bin(0)))),
		"lock-exclusive-busy": one(Call("lock", "lock", section("L", bin(1), "cookie2", "", "desc", bin(30, 0, 0, 0, 0, 0, 0, 0), bin(0)))),
		"list-lockers":        one(Call("lock", "get_info", section("L"))),
		"unlock":              one(Call("lock", "unlock", section("L", "cookie1"))),
		"lock-shared":         one(Call("lock", "lock", section("L2", bin(2), "c1", "tag", "desc", noTime, bin(1)))),
		"break-lock":          nil, "watch": nil, "unwatch": nil, "notify": nil, // have numbers of the run
		"listwatchers-cli": one(Watchers()), "write-namespace": one(WriteFull(text("in ns1"))),
		"write-locator": one(WriteFull(text("with key1"))), "ec-write_full": one(WriteFull(bytes.Repeat(text("e"), 5000))),
		"ec-read": one(Read(0, 6000)), "ec-omap": one(OmapSet(map[string][]byte{"k": text("v")})),
		"ec-write-partial": one(Write(3, text("zz"))), "name-too-long": one(WriteFull(text("x"))),
		"cli-put-get": {{WriteFull(text("hi\n"))}, {Read(0, 4<<20)}}, "cli-omapheader": {{OmapSetHeader(text("HEADER"))}, {OmapHeader()}},
		"list-objects": nil, "list-objects-all-ns": nil, "list-cursor": nil,
		"remove": one(Remove()), "remove-enoent": one(Remove()),
		"snap-write0": one(WriteFull(text("before"))), "snap-write1": one(WriteFull(text("after1"))), "listsnaps-cli": one(ListSnaps()),
		"snap-read": one(Read(0, 64)), "snap-rollback": nil, "pool-snap-write": one(WriteFull(text("x"))),
		"x-copy-from-1": nil, "x-copy-from-2": nil, "x-copy-from-3": nil, "x-copy-get-1": nil, "x-copy-get-2": nil, "x-copy-get-3": nil,
		"x-sparse-read-1": nil, "x-sparse-read-2": nil, "x-pgnls-1": nil, "x-pgnls-2": nil, "x-pgnls-3": nil,
	}
}

// numbered makes the operations that have numbers of the run, which are taken from the capture.
func numbered(t *testing.T, op Op) Op {
	u32 := func(at int) uint32 { return le.Uint32(op.Args[at:]) }
	u64 := func(at int) uint64 { return le.Uint64(op.Args[at:]) }
	r := wire.NewReader(op.Data)
	switch op.Code {
	case CodeWatch:
		return Watch(u64(0), op.Args[16], u32(17), u32(21))
	case CodeNotify:
		r.U32()
		return Notify(u64(0), r.U32(), r.Blob())
	case CodeNotifyAck:
		return NotifyAck(r.U64(), r.U64(), r.Blob())
	case CodeList:
		return List(readHObject(r), u64(0), u32(8))
	case CodeRollback:
		return Rollback(u64(0))
	case CodeSparseRead:
		again := SparseRead(u64(0), u64(8))
		copy(again.Args[16:], op.Args[16:]) // a truncation, which only file systems announce
		return again
	case CodeCopyFrom:
		name := r.Str()
		from := readLocator(r)
		from.Name = name
		again := CopyFrom(from, u64(0), u64(8))
		le.PutUint32(again.Args[17:], u32(17)) // advice about caches, which we do not give
		return again
	case CodeCall:
		return Call(string(op.Data[:4]), string(op.Data[4:14]), op.Data[14:])
	}
	t.Fatalf("operation %#x has no numbers", op.Code)
	return op
}

// parseOp reads MOSDOp.
func parseOp(t *testing.T, version uint16, front, data []byte) (q Request, e Envelope) {
	t.Helper()
	r := wire.NewReader(front)
	r.Envelope(1, func(_ uint8, r *wire.Reader) { e.PG, e.Shard = readPG(r), int8(r.U8()) })
	e.Hash, e.Epoch, q.Flags = r.U32(), r.U32(), r.U32()
	r.Skip(6 + 21 + 24)
	if version >= 9 {
		r.Skip(7)
	}
	e.ClientInc, q.MTime = r.U32(), r.Utime()
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
	made := ours()
	seen := map[string]bool{}
	for _, file := range files {
		for _, c := range readCaptured(t, file) {
			t.Run(file+"/"+c.Label, func(t *testing.T) {
				asked := map[uint64]*Request{}
				n := 0
				for _, m := range c.Messages {
					switch m.Type {
					case TypeOp:
						seen[c.Label] = true
						q, e := parseOp(t, m.Version, m.Front, m.Data)
						ops, known := made[c.Label]
						switch {
						case !known:
							t.Errorf("%+v is of no label that is known", q.Ops)
						case ops != nil:
							q.Ops = ops[n]
						case !strings.HasPrefix(c.Label, "x-copy-get"):
							q.Ops = []Op{numbered(t, q.Ops[0])}
						}
						n++
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
	for label := range made {
		if !seen[label] {
			t.Errorf("%s was not captured", label)
		}
	}
}

// again writes a request and compares.
func again(t *testing.T, q *Request, e *Envelope, version uint16, front, data []byte) {
	t.Helper()
	full := *q
	full.Flags &^= OnDisk | KnownRedirect | PoolEIO
	if writes := q.Flags&FlagWrite != 0; full.Flags&(FlagRead|FlagWrite|BalanceReads) == FlagRead && !strings.HasPrefix(q.Target.Name, "x") {
		full.Flags &^= FlagRead | FlagWrite // the operations say it
		if full.Writes() != writes {
			full.Flags |= FlagRead
		}
	}
	if full.Snap == Head {
		full.Snap = 0
	}
	gotFront, gotData, err := full.Append([]byte("head"), e)
	if err != nil || !bytes.Equal(gotFront[4:], front) || !bytes.Equal(gotData, data) {
		t.Errorf("%v\n got %x %x\nwant %x %x", err, gotFront[4:], gotData, front, data)
	}
	if v := Version(e.Features); v != version {
		t.Errorf("version %d, captured %d", v, version)
	}
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
	_ = DecodeReply(front, data, &p, q.Ops)
}

// The outputs that a real OSD sent have what the operations before had put there.
func TestOutputsOfARealOSD(t *testing.T) {
	outs := map[string][][]byte{}
	for _, file := range files[:2] {
		for _, c := range readCaptured(t, file) {
			for _, m := range c.Messages {
				if m.Type == TypeOpReply {
					outs[c.Label] = append(outs[c.Label], m.Data)
				}
			}
		}
	}
	last := func(label string) []byte { return outs[label][len(outs[label])-1] }
	if size, mtime, err := StatOutput(last("stat")); err != nil || size != 100 || mtime.Before(time.Unix(1<<30, 0)) {
		t.Errorf("stat: %d %v %v", size, mtime, err)
	}
	if sums, err := ChecksumOutput(CRC32C, nil); err != nil || len(sums) != 0 { // of a range behind the end
		t.Errorf("%x, %v", sums, err)
	}
	if sums, err := ChecksumOutput(CRC32C, last("checksum-crc32c")); err != nil || len(sums) != 4 || sums[0] == 0 {
		t.Errorf("crc32c: %x %v", sums, err)
	}
	if sums, err := ChecksumOutput(XXH64, last("checksum-xxh64")); err != nil || len(sums) != 1 || sums[0]>>32 == 0 {
		t.Errorf("xxh64: %x %v", sums, err)
	}
	if m, err := MapOutput(last("getxattrs")); err != nil || string(m["color"]) != "blue" || string(m["n"]) != "42" || len(m) != 2 {
		t.Errorf("xattrs: %q %v", m, err)
	}
	if p, more, err := OmapOutput(last("omap-get-vals")); err != nil || len(p) != 2 || !more || p[1].Key != "k2" || string(p[1].Value) != "v\x00two" {
		t.Errorf("omap values: %+v %v %v", p, more, err)
	}
	if keys, more, err := KeysOutput(last("omap-get-keys")); err != nil || more || !slices.Equal(keys, []string{"k1", "k2", "k3"}) {
		t.Errorf("omap keys: %q %v %v", keys, more, err)
	}
	if w, err := WatchersOutput(last("listwatchers-cli")); err != nil || len(w) != 1 || w[0].Client != wire.Client || w[0].Timeout != 20*time.Second || w[0].Addr.IsBlank() {
		t.Errorf("watchers: %+v %v", w, err)
	}
	clones, seq, err := SnapsOutput(last("listsnaps-cli"))
	if err != nil || len(clones) != 2 || clones[0].ID != seq || clones[1].ID != Head || !slices.Equal(clones[0].Snaps, []uint64{seq}) {
		t.Errorf("snapshots: %+v %d %v", clones, seq, err)
	}
	names := map[Entry]int{}
	for _, out := range outs["list-objects-all-ns"] {
		entries, next, err := ListOutput(out)
		if err != nil || next.Max != (next.Pool != 1) {
			t.Errorf("list: %+v %v", next, err)
		}
		for _, e := range entries {
			names[e]++
		}
	}
	if len(names) != 4 || names[Entry{"ns1", "obj2", "key1"}] != 2 || names[Entry{"", "obj1", ""}] != 2 {
		t.Errorf("list: %v", slices.Collect(maps.Keys(names)))
	}
}

// Extents of a sparse read have their bytes.
func TestASparseReadHasTheBytesOfItsExtents(t *testing.T) {
	for _, c := range readCaptured(t, "wire-extra") {
		if !strings.HasPrefix(c.Label, "x-sparse-read") {
			continue
		}
		out := c.Messages[len(c.Messages)-1].Data
		extents, data, err := SparseOutput(out)
		size := uint64(0)
		for _, e := range extents {
			size += e.Length
		}
		if err != nil || size != uint64(len(data)) || size == 0 {
			t.Errorf("%s: %+v, %d bytes, %v", c.Label, extents, len(data), err)
		}
		le.PutUint64(out[12:], 1<<40)
		if _, _, err := SparseOutput(out); err == nil {
			t.Error("an extent beyond the data: no error")
		}
	}
}
