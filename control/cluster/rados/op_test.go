package rados

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Our requests are, byte for byte, those of the real tool.
func TestRequestsAreThoseOfTheRealTool(t *testing.T) {
	at := place{group: osdmap.PG{Pool: 1, Seed: 7}, shard: -1, hash: 0xe478ac7f, epoch: 8}
	requests := map[string]request{
		"rados put obj9 (4096 bytes)": {op: opWriteFull, data: make([]byte, 4096), mtime: time.Unix(0x6b012325, 0x06907199)},
		"rados stat":                  {op: opStat},
	}
	found := 0
	for _, v := range captured.Read(t) {
		r, ok := requests[v.Note]
		if !ok || v.Type != typeOp {
			continue
		}
		found++
		r.place, r.obj, r.tid = at, "obj9", v.TID
		m := r.message()
		if got := hex.EncodeToString(m.Front); got != v.Front {
			t.Errorf("%s:\n got %s\nwant %s", v.Note, got, v.Front)
		}
		if m.Version != v.Version || m.CompatVersion != v.Compat || len(m.Data) != v.DataLen || m.TID != v.TID {
			t.Errorf("%s: %+v", v.Note, m)
		}
	}
	if found != len(requests) {
		t.Errorf("%d requests in the captures, want %d", found, len(requests))
	}
}

func TestAnotherAttemptSaysSo(t *testing.T) {
	first := request{op: opStat, obj: "x", tid: 5}
	again := first
	again.retry = 1
	a, b := first.message(), again.message()
	if a.TID != b.TID || again.flags() != first.flags()|flagRetry {
		t.Errorf("flags %#x and %#x", first.flags(), again.flags())
	}
}

func TestAnswersOfARealOSD(t *testing.T) {
	want := map[string]struct {
		result int32
		data   int
	}{
		"answer to: MOSDOp writefull 4096":             {0, 0},
		"answer to: MOSDOp delete":                     {0, 0},
		"answer to: MOSDOp read past the end":          {0, 6},
		"answer to: MOSDOp read of an absent object":   {-2, 0},
		"answer to: MOSDOp delete of an absent object": {-2, 0},
		"rados get":  {0, 4096},
		"rados stat": {0, 16},
		"rados rm":   {0, 0},
	}
	for _, v := range captured.Read(t) {
		w, ok := want[v.Note]
		if !ok || v.Type != typeOpReply {
			continue
		}
		delete(want, v.Note)
		r, err := decodeOpReply(v.FrontBytes(t), make([]byte, v.DataLen))
		if err != nil || r.result != w.result || len(r.data) != w.data || r.epoch == 0 {
			t.Errorf("%s: %+v, %v", v.Note, r, err)
		}
		front := v.FrontBytes(t)
		for n := range 100 {
			if r, err := decodeOpReply(front[:n], nil); !errors.Is(err, ErrMessage) {
				t.Errorf("%s cut after %d: %+v, %v", v.Note, n, r, err)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not in the captures: %v", want)
	}
}

func TestAStatIsDecoded(t *testing.T) {
	b := wire.AppendUtime(le.AppendUint64(nil, 4096), time.Unix(1000, 5))
	i, err := decodeStat(b)
	if err != nil || i.Size != 4096 || !i.ModTime.Equal(time.Unix(1000, 5)) {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := decodeStat(b[:15]); !errors.Is(err, ErrMessage) {
		t.Errorf("cut: %v", err)
	}
}

// chain has the maps of a real cluster that changes, from epoch 30 on.
func chain(t *testing.T, n int) (incs, wholes map[uint32][]byte) {
	t.Helper()
	f, err := os.Open("../internal/osdmap/testdata/chain-reef.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	incs, wholes = map[uint32][]byte{}, map[uint32][]byte{}
	lines := json.NewDecoder(z)
	for range n {
		var l struct {
			Epoch     uint32
			Inc, Full []byte
		}
		if err := lines.Decode(&l); err != nil {
			t.Fatal(err)
		}
		incs[l.Epoch], wholes[l.Epoch] = l.Inc, l.Full
	}
	return incs, wholes
}

// Each new map has the requests sent again whose place it changes, at once, and no other.
func TestARequestIsSentAgainExactlyWhereAMapMovesIt(t *testing.T) {
	monitors, err := mon.NewClient(mon.Config{Mons: []wire.Addr{{Type: wire.AddrMsgr2}}})
	if err != nil {
		t.Fatal(err)
	}
	c := New(monitors)
	incs, wholes := chain(t, 100)
	first, err := osdmap.Decode(wholes[30])
	if err != nil {
		t.Fatal(err)
	}
	c.take(&mon.OSDMaps{FSID: first.FSID, Full: map[uint32][]byte{30: wholes[30]}})
	again, moves := map[*request]bool{}, 0
	var requests []*request
	for i := range 60 {
		r := &request{op: opStat, obj: strconv.Itoa(i), pool: int64(1 + i%2)}
		r.place, _ = c.placeBy(c.maps.newest.Load(), r)
		requests = append(requests, r)
		defer c.watch(r, func() { again[r] = true })()
	}
	for epoch := uint32(31); epoch < 130; epoch++ {
		clear(again)
		before := map[*request]place{}
		for _, r := range requests {
			before[r] = r.place
		}
		c.take(&mon.OSDMaps{FSID: first.FSID, Incremental: map[uint32][]byte{epoch: incs[epoch]}})
		for _, r := range requests {
			p, err := c.placeBy(c.maps.newest.Load(), r)
			was := before[r]
			if want := err != nil || p.osd != was.osd || p.addr != was.addr || p.group != was.group; again[r] != want {
				t.Errorf("epoch %d: object %s goes from %+v to %+v, %v; sent again: %v", epoch, r.obj, was, p, err, again[r])
			}
			if r.place = p; again[r] {
				moves++
			}
		}
	}
	if m := c.maps.newest.Load(); m.Epoch != 129 || moves < 50 {
		t.Errorf("epoch %d, %d requests were sent again", m.Epoch, moves)
	}
}

// Maps are taken one epoch after the other; a whole one goes before where one is missing.
func TestMapsAreTakenInTheirOrder(t *testing.T) {
	incs, wholes := chain(t, 20)
	const first = 30
	only := func(all map[uint32][]byte, epochs ...uint32) map[uint32][]byte {
		some := map[uint32][]byte{}
		for _, e := range epochs {
			some[e] = all[e]
		}
		return some
	}
	var m *osdmap.Map
	var fsid mon.FSID
	for i, c := range []struct {
		got   mon.OSDMaps
		epoch uint32
		fails bool
	}{
		{mon.OSDMaps{Incremental: only(incs, first)}, 0, false}, // of what?
		{mon.OSDMaps{Full: only(wholes, first)}, first, false},
		{mon.OSDMaps{Incremental: only(incs, first+1, first+2, first+3)}, first + 3, false},
		{mon.OSDMaps{Incremental: only(incs, first+2, first+6)}, first + 3, false}, // old, and a gap
		{mon.OSDMaps{Full: only(wholes, first+5), Incremental: only(incs, first+4, first+6)}, first + 6, false},
		{mon.OSDMaps{Full: only(wholes, first+1)}, first + 6, false},
		{mon.OSDMaps{FSID: mon.FSID{9}, Incremental: incs}, first + 6, true},
		{mon.OSDMaps{Incremental: map[uint32][]byte{first + 7: incs[first+8]}}, first + 6, true},
		{mon.OSDMaps{Full: map[uint32][]byte{first + 9: wholes[first+8]}}, first + 6, true},
		{mon.OSDMaps{Incremental: incs}, first + 19, false},
	} {
		if c.got.FSID == (mon.FSID{}) && m != nil {
			c.got.FSID = fsid
		} else if len(c.got.Full) > 0 {
			whole, err := osdmap.Decode(wholes[first])
			if err != nil {
				t.Fatal(err)
			}
			fsid = whole.FSID
			c.got.FSID = fsid
		}
		next, err := advance(m, &c.got)
		if (err != nil) != c.fails || c.fails && !errors.Is(err, ErrMessage) {
			t.Errorf("step %d: %v", i, err)
		}
		if m = next; m != nil && m.Epoch != c.epoch || m == nil && c.epoch != 0 {
			t.Fatalf("step %d: %+v, want epoch %d", i, m, c.epoch)
		}
	}
}

func TestAbsentObjectsAreNotExist(t *testing.T) {
	err := error(&Error{Op: "read", Object: "x", Errno: 2})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `read object "x"`) {
		t.Errorf("%v", err)
	}
}

// Matrix: HI-11
func FuzzDecodeOpReply(f *testing.F) {
	for _, v := range captured.Read(f) {
		if v.Type == typeOpReply {
			f.Add(v.FrontBytes(f), make([]byte, v.DataLen))
		}
	}
	f.Fuzz(func(t *testing.T, front, data []byte) {
		if r, err := decodeOpReply(front, data); err == nil && len(r.data) > len(data) {
			t.Errorf("%d bytes of %d", len(r.data), len(data))
		}
	})
}

func TestAnAnswerLongerThanTheReadIsRefused(t *testing.T) {
	for n, refused := range map[int]bool{5: false, 4: false, 3: true} {
		data, err := atMost(n, []byte("data"))
		if errors.Is(err, ErrMessage) != refused || !refused && string(data) != "data" {
			t.Errorf("%d asked for: %q, %v", n, data, err)
		}
	}
}
