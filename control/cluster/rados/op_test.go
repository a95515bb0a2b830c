package rados

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// An OSD refuses a request as a whole, as where there is no object, or at one of its steps. No step that did not run has
// the result of one that did.
func TestAStepThatDidNotRunIsSkipped(t *testing.T) {
	refused := fmt.Errorf("%w: %w", ErrRefused, syscall.ENOENT)
	unknown := fmt.Errorf("%w: late", ErrUnknown)
	for name, c := range map[string]struct {
		err    error
		result int32 // of the second step
		want   [3]error
	}{
		"all ran":              {nil, 0, [3]error{}},
		"refused as a whole":   {refused, 0, [3]error{ErrSkipped, ErrSkipped, ErrSkipped}},
		"refused at a step":    {refused, -int32(syscall.ENOENT), [3]error{nil, syscall.ENOENT, ErrSkipped}},
		"an unknown outcome":   {unknown, 0, [3]error{ErrUnknown, ErrUnknown, ErrUnknown}},
		"a step that may fail": {nil, 1, [3]error{}},
	} {
		t.Run(name, func(t *testing.T) {
			var op ReadOp
			got := []*Result[[]byte]{op.Read(0, 1), op.Xattr("x"), op.Read(1, 1)}
			op.ops[1].Result = c.result
			op.conclude(&osdop.Reply{}, c.err)
			for i, r := range got {
				if !errors.Is(r.Err, c.want[i]) || c.want[i] == nil && r.Err != nil {
					t.Errorf("step %d: %v, want %v", i, r.Err, c.want[i])
				}
			}
		})
	}
}

// A pool that does not exist is not taken for an object that does not.
func TestAPoolThatDoesNotExistSaysWhatToDo(t *testing.T) {
	deleted := Object{pool: Pool{name: "p"}, name: "o"}.explained(&Error{OSD: -1, Outcome: ErrRefused, Err: syscall.ENOENT})
	for want, err := range map[string]error{"(the pool was deleted)": deleted, "(ceph osd pool ls, or ceph osd pool create)": noPool("p")} {
		if !errors.Is(err, syscall.ENOENT) || !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What an OSD answers about locks is bounded by its size, and an error where it is none.
func FuzzLockers(f *testing.F) {
	b, mark := wire.BeginEnvelope(nil, 1, 1)
	b = le.AppendUint32(b, 1)
	b, id := wire.BeginEnvelope(b, 1, 1)
	b = wire.EndEnvelope(wire.AppendString(le.AppendUint64(append(b, 8), 4123), "cookie"), id)
	b, info := wire.BeginEnvelope(b, 1, 1)
	b = wire.Addr{}.AppendTo(wire.AppendUtime(b, time.Unix(7, 9)))
	b = wire.EndEnvelope(wire.AppendString(b, "description"), info)
	b = wire.EndEnvelope(wire.AppendString(append(b, lockShared), "tag"), mark)
	l, err := readLockers(b)
	want := Locker{Type: wire.Client, Client: 4123, Cookie: "cookie", Expires: time.Unix(7, 9).UTC(), Description: "description"}
	if err != nil || len(l.owners) != 1 || l.owners[0] != want || l.kind != lockShared || l.tag != "tag" {
		f.Fatalf("%+v %v", l, err)
	}
	f.Add(b)
	names, mark := wire.BeginEnvelope(nil, 1, 1)
	f.Add(wire.EndEnvelope(wire.AppendString(le.AppendUint32(names, 1), "name"), mark))
	f.Fuzz(func(t *testing.T, p []byte) {
		l, err := readLockers(p)
		if (err != nil) != errors.Is(err, ErrMessage) || len(l.owners) > len(p)/12 {
			t.Errorf("%d lockers of %d bytes, %v", len(l.owners), len(p), err)
		}
		names, err := readLocks(p)
		if (err != nil) != errors.Is(err, ErrMessage) || len(names) > len(p)/4 {
			t.Errorf("%d names of %d bytes, %v", len(names), len(p), err)
		}
	})
}
