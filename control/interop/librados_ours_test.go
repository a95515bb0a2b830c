package interop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// side is our side of a comparison with librados.
type side struct {
	pool  rados.Pool
	snaps []uint64
}

// run carries an action out. It returns an error if there is no outcome.
func (s *side) run(ctx context.Context, a *action) (out outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p := s.pool.WithNamespace(a.Namespace).WithLocator(a.Locator)
	if n := len(s.snaps); n > 0 {
		p = p.WithSnapContext(s.snaps[n-1], s.snaps...)
	}
	if a.Snap >= 0 && a.Kind != "rollback" {
		p = p.WithSnap(s.snaps[a.Snap])
	}
	o := p.Object(string(a.Object))
	r, w := results{}, rados.WriteOp{}
	var op rados.Op = &r.ReadOp
	lock := rados.Lock{Name: "lock", Cookie: string(a.Key), Renew: a.Number != 0}
	switch a.Kind {
	case "write":
		w.SetTime(time.Unix(a.Time, 0))
		for i := range a.Steps {
			add(&w, &a.Steps[i], changes)
		}
		op = &w
	case "read":
		for i := range a.Steps {
			add(&r, &a.Steps[i], reads)
		}
	case "data":
		data, err := o.Read(ctx, a.Offset, int(a.Number))
		if out.Results = []stepOutcome{{Outputs: raw(data)}}; err != nil {
			out.Results[0] = stepOutcome{Errno: errnoOf(err)}
		}
		return out, out.fails(err)
	case "xattr":
		one(&r, r.Xattr(string(a.Key)), raw)
	case "call":
		one(&r, r.Exec("hello", string(a.Key), a.Data), raw)
	case "remove":
		return out, out.fails(o.Remove(ctx))
	case "lock":
		lock.Shared, lock.Tag = true, "tag"
		return out, out.fails(o.Lock(ctx, lock))
	case "lock exclusively":
		return out, out.fails(o.Lock(ctx, lock))
	case "unlock":
		return out, out.fails(o.Unlock(ctx, "lock", lock.Cookie))
	case "snap":
		id, err := p.CreateSelfManagedSnap(ctx)
		s.snaps = append(s.snaps, id)
		return out, err
	case "rollback":
		return out, out.fails(o.Rollback(ctx, s.snaps[a.Snap]))
	case "list":
		names := [][]byte{}
		for e, err := range s.pool.WithNamespace(rados.AllNamespaces).Objects(ctx) {
			if err != nil {
				return out, err
			}
			names = append(names, []byte(strings.Join([]string{e.Namespace, e.Name, e.Locator}, "/")))
		}
		slices.SortFunc(names, bytes.Compare)
		out.Results = []stepOutcome{{Outputs: names}}
		return out, nil
	default:
		return out, fmt.Errorf("no operation %q", a.Kind)
	}
	out.Version, err = o.Operate(ctx, op)
	for _, result := range r.list {
		if one, ran := result(); ran {
			out.Results = append(out.Results, one)
		}
	}
	return out, out.fails(err)
}

// fails notes the errno of an operation that an OSD refused. It returns any other error.
func (o *outcome) fails(err error) error {
	if errors.Is(err, rados.ErrRefused) {
		o.Errno = errnoOf(err)
		return nil
	}
	return err
}

// errnoOf is the errno of an error; -1: it has none.
func errnoOf(err error) int {
	var errno syscall.Errno
	var differs *rados.MismatchError
	switch {
	case errors.As(err, &differs):
		return 4095 + int(differs.At)
	case errors.As(err, &errno):
		return int(errno)
	}
	return -1
}

func raw(v []byte) [][]byte { return [][]byte{v} }

// results are a ReadOp and functions that return the results of its steps, in their order.
type results struct {
	rados.ReadOp
	list []func() (r stepOutcome, ran bool)
}

func one[T any](r *results, step *rados.Result[T], outputs func(T) [][]byte) {
	r.list = append(r.list, func() (stepOutcome, bool) {
		if step.Err != nil {
			return stepOutcome{Errno: errnoOf(step.Err)}, !errors.Is(step.Err, rados.ErrSkipped)
		}
		return stepOutcome{Outputs: outputs(step.Value)}, true
	})
}

// pairs has the keys and values of a map, in the order of the keys.
func pairs(values map[string][]byte) (list [][]byte) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		list = append(list, []byte(key), values[key])
	}
	return list
}

// way is how a kind of step is added to an operation of type T, and how often the generator chooses it.
type way[T any] struct {
	kind   string
	weight int
	add    func(op T, s *step)
}

// asserting are the steps that reads and writes have.
type asserting interface {
	AssertExists()
	AssertVersion(v uint64)
	CompareExtent(offset uint64, data []byte)
	CompareXattr(name string, c rados.Comparison, value []byte)
	CompareOmap(key string, c rados.Comparison, value []byte)
}

var asserts = []way[asserting]{
	{"assert exists", 1, func(op asserting, _ *step) { op.AssertExists() }},
	{"assert version", 1, func(op asserting, s *step) { op.AssertVersion(s.Number) }},
	{"compare extent", 1, func(op asserting, s *step) { op.CompareExtent(s.Offset, s.Data) }},
	{"compare xattr", 1, func(op asserting, s *step) { op.CompareXattr(string(s.Key), rados.Comparison(s.Number), s.Data) }},
	{"compare omap", 1, func(op asserting, s *step) { op.CompareOmap(string(s.Key), rados.Comparison(s.Number), s.Data) }},
}

var reads = []way[*results]{
	{"read", 2, func(r *results, s *step) { one(r, r.Read(s.Offset, s.Number), raw) }},
	{"stat", 1, func(r *results, _ *step) {
		one(r, r.Stat(), func(i rados.Info) [][]byte {
			return raw(fmt.Appendf(nil, "%d at %d", i.Size, min(i.ModTime.Unix(), latest)))
		})
	}},
	{"xattrs", 1, func(r *results, _ *step) { one(r, r.Xattrs(), pairs) }},
	{"checksum", 1, func(r *results, s *step) {
		kind, seed := rados.XXH64, binary.LittleEndian.Uint64(s.Data)
		if string(s.To) != "Q" {
			kind, seed = rados.CRC32C, seed&math.MaxUint32
		}
		one(r, r.Checksum(kind, seed, s.Offset, s.Number, 0), func(sums []uint64) (list [][]byte) {
			for _, sum := range sums {
				list = append(list, fmt.Append(nil, len(sums)), fmt.Append(nil, sum))
			}
			return list
		})
	}},
	{"call", 1, func(r *results, s *step) { one(r, r.Exec("hello", string(s.Key), s.Data), raw) }},
	{"omap", 2, func(r *results, s *step) { one(r, r.Omap(string(s.Key), string(s.To), s.Number), page(true)) }},
	{"omap keys", 1, func(r *results, s *step) { one(r, r.OmapKeys(string(s.Key), s.Number), page(false)) }},
	{"omap by keys", 1, func(r *results, s *step) { one(r, r.OmapByKeys(string(s.Key), string(s.To)), pairs) }},
}

// page has the keys, and the values, of a page of an omap, and whether it was cut.
func page(values bool) func(p rados.Page) [][]byte {
	return func(p rados.Page) (list [][]byte) {
		for _, pair := range p.Pairs {
			if list = append(list, []byte(pair.Key)); values {
				list = append(list, pair.Value)
			}
		}
		return append(list, map[bool][]byte{true: []byte("more"), false: []byte("end")}[p.More])
	}
}

// resizes are the changes that change the data of an object.
var resizes = []way[*rados.WriteOp]{
	{"write", 2, func(op *rados.WriteOp, s *step) { op.Write(s.Offset, s.Data) }},
	{"write full", 2, func(op *rados.WriteOp, s *step) { op.WriteFull(s.Data) }},
	{"append", 2, func(op *rados.WriteOp, s *step) { op.Append(s.Data) }},
	{"write same", 1, func(op *rados.WriteOp, s *step) { op.WriteSame(s.Offset, s.Number, s.Data) }},
	{"zero", 1, func(op *rados.WriteOp, s *step) { op.Zero(s.Offset, s.Number) }},
	{"truncate", 1, func(op *rados.WriteOp, s *step) { op.Truncate(s.Offset) }},
	{"remove", 1, func(op *rados.WriteOp, _ *step) { op.Remove() }},
	{"create", 1, func(op *rados.WriteOp, s *step) { op.Create(s.Number != 0) }},
	{"call", 1, func(op *rados.WriteOp, s *step) { op.Exec("hello", string(s.Key), s.Data) }},
}

var changes = append(resizes[:len(resizes):len(resizes)], []way[*rados.WriteOp]{
	{"set xattr", 2, func(op *rados.WriteOp, s *step) { op.SetXattr(string(s.Key), s.Data) }},
	{"remove xattr", 1, func(op *rados.WriteOp, s *step) { op.RemoveXattr(string(s.Key)) }},
	{"set omap", 2, func(op *rados.WriteOp, s *step) {
		op.SetOmap(map[string][]byte{string(s.Key): s.Data, string(s.To): append(slices.Clone(s.Data), '2')})
	}},
	{"remove omap", 1, func(op *rados.WriteOp, s *step) { op.RemoveOmap(string(s.Key), string(s.To)) }},
	{"remove omap range", 1, func(op *rados.WriteOp, s *step) { op.RemoveOmapRange(string(s.Key), string(s.To)) }},
	{"clear omap", 1, func(op *rados.WriteOp, _ *step) { op.ClearOmap() }},
	{"hint", 1, func(op *rados.WriteOp, s *step) { op.AllocHint(s.Number, s.Number) }},
}...)

// find is the place of a kind; negative: it is not among them.
func find[T any](ways []way[T], kind string) int {
	return slices.IndexFunc(ways, func(w way[T]) bool { return w.kind == kind })
}

// add adds a step that reads or changes have, or both.
func add[T asserting](op T, s *step, ways []way[T]) {
	if i := find(ways, s.Kind); i >= 0 {
		ways[i].add(op, s)
	} else {
		asserts[find(asserts, s.Kind)].add(op, s)
	}
}

// generator makes actions.
type generator struct {
	*rand.Rand
	coded    bool              // the pool is erasure-coded
	versions map[string]uint64 // of objects, as far as they are known
}

func newGenerator(seed, stream uint64, kind string) *generator {
	return &generator{rand.New(rand.NewPCG(seed, stream)), kind != "replicated", map[string]uint64{}}
}

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

// pickKind chooses a kind, by the weights.
func pickKind[T any](g *generator, ways []way[T]) string {
	var all []string
	for _, w := range ways {
		all = append(all, slices.Repeat([]string{w.kind}, w.weight)...)
	}
	return pick(g, all...)
}

// latest bounds the times that writes set. A later time is that of a rollback, which each client takes from its clock.
const latest = 1e9 + 1e6

func (g *generator) action(snaps int) action {
	a := action{step: g.step("write"), Snap: -1, Time: 1e9 + g.Int64N(latest-1e9), Namespace: pick(g, "", "", "a namespace", "another/one")}
	a.Object = []byte(pick(g, "object", "with a blank", "\x02\xff/\n\"", strings.Repeat("long", 100)) + fmt.Sprint(g.IntN(4)))
	if g.IntN(5) == 0 {
		a.Object, a.Locator = append(a.Object, " by key"...), "key"
	}
	if snaps > 0 && g.IntN(3) == 0 {
		a.Snap = g.IntN(snaps)
	}
	switch k := g.IntN(1000); {
	case k < 3:
		a.Kind = "snap"
	case k < 10:
		a.Kind = "list"
	case k < 30 && snaps > 0:
		a.Kind, a.Snap = "rollback", g.IntN(snaps)
	case k < 120:
		a.Kind, a.Number = "data", 1+g.Uint64N(40_000)
	case k < 170:
		a.Kind = "xattr"
	case k < 200:
		a.Kind, a.Key, a.Data = "call", []byte(pick(g, "say_hello", "bad_reader", "no_method")), g.data(60)
	case k < 220:
		a.Kind = "remove"
	case k < 260:
		a.Kind, a.Object, a.Snap = pick(g, "lock", "lock exclusively", "unlock"), []byte("locked"), -1
		a.Key, a.Number = []byte(pick(g, "1", "2")), uint64(g.IntN(2))
	case k < 520:
		a.Kind = "read"
		a.Steps = g.steps(&a, func() string { return pickKind(g, reads) })
	default:
		a.Steps = g.steps(&a, func() string { return pickKind(g, changes) })
		if g.IntN(20) > 0 {
			a.Snap = -1
		}
	}
	return a
}

// steps makes the steps of a compound operation. On erasure-coded objects it avoids those at which OSDs abort, whoever sends
// them: two changes of the size (16.2 and 18.2: ECTransaction.cc), and a comparison of bytes beyond the end (20.2, too:
// ECCommonL.cc).
func (g *generator) steps(a *action, next func() string) (list []step) {
	sized := false
	for range 1 + g.IntN(4) {
		kind := next()
		if g.IntN(10) == 0 {
			kind = pickKind(g, asserts)
		}
		if changesSize := find(resizes, kind) >= 0 && a.Kind == "write"; g.coded && (kind == "compare extent" || changesSize && sized) {
			continue
		} else if changesSize {
			sized = true
		}
		s := g.step(kind)
		switch kind {
		case "assert version":
			s.Number = g.versions[a.place()] + pick[uint64](g, 0, 0, 0, 1)
			s.Number -= min(s.Number, pick[uint64](g, 0, 0, 0, 1))
		case "call": // record_hello would write who says it
			s.Key = []byte(pick(g, "writes_dont_return_data", "turn_it_to_11", "bad_writer"))
			if a.Kind == "read" {
				s.Key = []byte(pick(g, "say_hello", "say_hello", "no_method"))
			}
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		list = append(list, step{Kind: "assert exists"})
	}
	return list
}

func (g *generator) step(kind string) step {
	s := step{Kind: kind, Offset: g.Uint64N(4) * g.Uint64N(6000), Number: g.Uint64N(5000), Key: g.key(), To: g.key(), Data: g.data(9000)}
	switch kind {
	case "create":
		s.Number = uint64(g.IntN(4) / 3)
	case "append":
		if g.IntN(2) == 0 {
			s.Data = bytes.Repeat(s.Data[:1], 8192) // a stripe
		}
	case "write same":
		s.Data = s.Data[:min(len(s.Data), 20)]
		s.Number = uint64(len(s.Data))*(1+g.Uint64N(30)) + g.Uint64N(10)/9 // sometimes no multiple
	case "zero", "read":
		s.Number++ // an OSD of 16.2 aborts at a zero of no bytes; the C functions have no memory for a read of all bytes
	case "remove omap range":
		if bytes.Compare(s.Key, s.To) > 0 { // memory of an OSD on memstore is destroyed by the other order
			s.Key, s.To = s.To, s.Key
		}
	case "compare extent":
		s.Data, s.Offset = s.Data[:min(len(s.Data), 1+g.IntN(3))], pick(g, 0, s.Offset)
	case "compare xattr", "compare omap":
		s.Data, s.Number = s.Data[:1], pick[uint64](g, 1, 3, 5)
	case "set xattr", "set omap":
		s.Data = s.Data[:min(len(s.Data), pick(g, 1, 100))]
	case "checksum":
		s.To, s.Data = []byte(pick(g, "I", "Q")), bytes.Repeat(s.Data[:1], 8)
	case "omap", "omap keys":
		s.Key, s.To, s.Number = pick(g, nil, s.Key), pick(g, nil, []byte("key 1")), 1+g.Uint64N(8)
	}
	return s
}

func (g *generator) key() []byte { return fmt.Appendf(nil, "key %d", g.IntN(20)) }

// data is of few different bytes, so that comparisons may hold.
func (g *generator) data(most int) []byte {
	return bytes.Repeat([]byte{'a' + byte(g.IntN(3))}, 1+g.IntN(most))
}
