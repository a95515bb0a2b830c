package rados

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Our requests are, byte for byte, those of the real tool.
func TestRequestsAreThoseOfTheRealTool(t *testing.T) {
	at := place{pool: 1, seed: 7, hash: 0xe478ac7f, epoch: 8}
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

func TestPlacementIsDecoded(t *testing.T) {
	const good = `{"epoch":8,"pool":"data","pool_id":1,"objname":"obj9","raw_pgid":"1.e478ac7f","pgid":"1.7","up":[0],"up_primary":0,"acting":[0],"acting_primary":0}`
	p, err := decodePlace([]byte(good))
	if want := (place{pool: 1, seed: 7, hash: 0xe478ac7f, epoch: 8}); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []struct{ old, repl string }{
		{`"1.7"`, `"2.7"`}, {`"1.7"`, `"1"`}, {`1.e478ac7f`, `1.xyz`}, {`"acting_primary":0`, `"acting_primary":-1`}, {`{`, ``},
	} {
		if p, err := decodePlace([]byte(strings.Replace(good, bad.old, bad.repl, 1))); err == nil {
			t.Errorf("with %s: %+v", bad.repl, p)
		}
	}
}

func TestAddressesAreDecoded(t *testing.T) {
	const text = `{"epoch":9,"osds":[
		{"osd":0,"up":1,"public_addrs":{"addrvec":[{"type":"v2","addr":"10.0.0.1:6800","nonce":11},{"type":"v1","addr":"10.0.0.1:6801","nonce":11}]}},
		{"osd":1,"up":0,"public_addrs":{"addrvec":[{"type":"v2","addr":"10.0.0.2:6800","nonce":12}]}},
		{"osd":2,"up":1,"public_addrs":{"addrvec":[{"type":"v1","addr":"10.0.0.3:6800","nonce":13}]}}]}`
	epoch, addrs, err := decodeAddrs([]byte(text), wire.AddrVec.V2)
	if err != nil || epoch != 9 || len(addrs) != 1 || addrs[0].String() != "v2:10.0.0.1:6800/11" {
		t.Errorf("%d %v %v", epoch, addrs, err)
	}
	if _, _, err := decodeAddrs([]byte(strings.Replace(text, "10.0.0.1:6800", "nowhere", 1)), wire.AddrVec.V2); !errors.Is(err, ErrMessage) {
		t.Errorf("a bad address: %v", err)
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
