package osdop

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var stat = Op{Code: CodeStat}

// The events and answers of one notify are those that librados saw.
func TestANotifyIsToldAndAnswered(t *testing.T) {
	for _, file := range files[:2] {
		events := 0
		for _, c := range readCaptured(t, file) {
			for _, m := range c.Messages {
				if m.Type != TypeWatchNotify {
					continue
				}
				events++
				clear(m.Front[10:18]) // the object's version, of no use
				w, err := DecodeWatchNotify(m.Front)
				again := captured.WatchNotify(w.What, w.Cookie, w.NotifyID, w.Payload, w.Result, w.Notifier)
				if err != nil || !bytes.Equal(again, m.Front) {
					t.Errorf("%+v, %v", w, err)
				}
				answers, err := DecodeAnswers(m.Data)
				switch w.What {
				case EventNotify:
					if string(w.Payload) != "payload" || w.NotifyID == 0 || w.Cookie == 0 || w.Notifier == 0 {
						t.Errorf("%+v", w)
					}
				case EventComplete:
					if err != nil || len(answers) != 1 || string(answers[0].Data) != "ackdata" || answers[0].Missed || w.Result != 0 {
						t.Errorf("%+v: %+v, %v", w, answers, err)
					}
				}
				for n := range m.Front {
					if _, err := DecodeWatchNotify(m.Front[:n]); err == nil {
						t.Errorf("cut after %d: no error", n)
					}
				}
			}
		}
		if events != 2 {
			t.Errorf("%s: %d events", file, events)
		}
	}
}

// Objects come in the order of their reversed hashes, then by namespace, key and name.
func TestPositionsHaveTheOrderOfOSDs(t *testing.T) {
	order := []HObject{
		Min(), {Pool: -1, Name: "z"}, {Pool: 1, Hash: 0}, {Pool: 1, Hash: 0x80000000}, {Pool: 1, Hash: 2, Name: "z", Snap: 9},
		{Pool: 1, Hash: 1, Namespace: "", Name: "b"}, {Pool: 1, Hash: 1, Namespace: "", Name: "b", Snap: 1},
		{Pool: 1, Hash: 1, Namespace: "n", Name: "a"}, {Pool: 1, Hash: 1, Namespace: "n", Key: "b", Name: "a"},
		{Pool: 1, Hash: 1, Namespace: "n", Name: "b"}, {Pool: 1, Hash: 1, Namespace: "n", Name: "c"}, {Pool: 2}, {Max: true},
	}
	for i := range order {
		for j := range order {
			if got := order[i].Compare(&order[j]); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%+v and %+v: %d", order[i], order[j], got)
			}
		}
		r := wire.NewReader(order[i].AppendTo(nil))
		if got := ReadHObject(r); r.Err() != nil || got != order[i] {
			t.Errorf("%+v became %+v, %v", order[i], got, r.Err())
		}
	}
}

// A redirect names the pool, and the object only if it has another name there.
func TestARedirectIsUnderstood(t *testing.T) {
	ops := []Op{stat}
	b := wire.AppendString(nil, "name")
	b = AppendPG(b, osdmap.PG{Pool: 1})
	b = append(b, make([]byte, 8+4+12)...)
	b = le.AppendUint32(le.AppendUint32(b, 7), 1)
	b = ops[0].appendTo(b)
	b = append(b, make([]byte, 4+4+12+8)...)
	b, mark := wire.BeginEnvelope(append(b, 1), 1, 1)
	to := Object{Pool: 9, Namespace: "n", Locator: "l", Name: "o"}
	b = le.AppendUint32(wire.AppendString(to.AppendLocator(b), to.Name), 0)
	b = append(wire.EndEnvelope(b, mark), make([]byte, 24)...)
	var p Reply
	if err := DecodeReply(b, nil, &p, ops); err != nil || p.Redirect == nil || *p.Redirect != to {
		t.Errorf("%+v, %v", p, err)
	}
	if err := DecodeReply(b, nil, &p, []Op{Extent(CodeZero, 0, 1, nil)}); err != nil { // OSDs make truncations of zeros
		t.Errorf("an answer that has another operation: %v", err)
	}
	if err := DecodeReply(b, nil, &p, append(ops, stat)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("an answer to fewer operations: %v", err)
	}
}

func TestWhatNoOSDTakesIsRefused(t *testing.T) {
	long := string(make([]byte, MaxClassName+1))
	for name, r := range map[string]*Request{
		"a long name of a class":  {Ops: []Op{Call(long, "m", nil)}},
		"a long name of a method": {Ops: []Op{Call("c", long, nil)}},
		"many operations":         {Ops: slices.Repeat([]Op{stat}, MaxOps)},
		"much data":               {Ops: slices.Repeat([]Op{Input(CodeWrite, make([]byte, 1<<20))}, MaxData>>20+1)},
	} {
		if _, _, err := r.Append(nil, &Envelope{}); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeReply(f *testing.F) {
	for _, c := range readCaptured(f, "wire-reef") {
		for _, m := range c.Messages {
			if m.Type == TypeOpReply {
				f.Add([]byte(m.Front), []byte(m.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, front, data []byte) {
		for _, ops := range [][]Op{{stat}, {Input(CodeRead, nil)}, {Extent(CodeAssertVer, 0, 1, nil), Input(CodeRead, nil)}} {
			var p Reply
			if DecodeReply(front, data, &p, ops) != nil {
				continue
			}
			size := 0
			for i := range ops {
				size += len(ops[i].Out)
			}
			if size > len(data) {
				t.Errorf("%d bytes of output in %d", size, len(data))
			}
		}
	})
}

// Clients keep back-offs: their names are bounded.
func TestABackoffOfEndlessNamesIsRefused(t *testing.T) {
	b := Backoff{PG: osdmap.PG{Pool: 3, Seed: 7}, Shard: 2, Epoch: 9, What: Unblock, ID: 5, End: HObject{Name: string(make([]byte, maxBackoff-200))}}
	if got, err := DecodeBackoff(b.AppendTo(nil)); err != nil || got != b {
		t.Errorf("%+v, %v, want %+v", got, err, b)
	}
	b.Begin.Name = string(make([]byte, 200))
	if _, err := DecodeBackoff(b.AppendTo(nil)); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func FuzzDecodeEvents(f *testing.F) {
	for _, c := range readCaptured(f, "wire-reef") {
		for _, m := range c.Messages {
			f.Add([]byte(m.Front))
			f.Add([]byte(m.Data))
		}
	}
	b := Backoff{End: HObject{Max: true}}
	f.Add(b.AppendTo(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		if b, err := DecodeBackoff(p); err == nil {
			if again, err := DecodeBackoff(b.AppendTo(nil)); err != nil || again != b {
				t.Errorf("%+v became %+v, %v", b, again, err)
			}
		}
		_, _ = DecodeWatchNotify(p)
		_, _ = DecodeAnswers(p)
		_, _ = NotifyOutput(p)
	})
}
