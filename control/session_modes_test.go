package control_test

import (
	"context"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// variant is what every session test runs over: the protocol above must not
// depend on it.
type variant struct {
	backend    uring.Backend
	rev0       bool
	secure     bool
	compressed bool
	msgr1      bool // without any of the others
}

func (v variant) String() string {
	if v.msgr1 {
		return string(v.backend) + ",msgr1"
	}
	s := string(v.backend) + ",rev1"
	if v.rev0 {
		s = string(v.backend) + ",rev0"
	}
	if v.secure {
		s += ",secure"
	}
	if v.compressed {
		s += ",compressed"
	}
	return s
}

// engines are those that tests run over: the one that this build prefers, and epoll in
// the default build alone. Without rings epoll is what the build prefers, so that it would
// be the same twice; beside giouring it is that of the default build.
var engines = enginesOf(uring.Flavour)

func enginesOf(flavour uring.Backend) []uring.Backend {
	if flavour == uring.IOUring {
		return []uring.Backend{uring.Auto, uring.Epoll}
	}
	return []uring.Backend{uring.Auto}
}

// variants are those in which most tests run: each engine with both
// revisions, neither encrypted nor compressed.
var variants = allVariants[:2*len(engines)]

// newest are those of the variants with the newer revision.
var newest = variants[:len(engines)]

// allVariants are all modes with each engine.
var allVariants = makeVariants()

// msgr1Variants are each engine with the older protocol.
var msgr1Variants = makeMsgr1Variants()

func makeMsgr1Variants() (out []variant) {
	for _, b := range engines {
		out = append(out, variant{backend: b, msgr1: true})
	}
	return out
}

func makeVariants() (out []variant) {
	bits := []bool{false, true}
	for _, compressed := range bits {
		for _, secure := range bits {
			for _, rev0 := range bits {
				for _, b := range engines {
					out = append(out, variant{backend: b, rev0: rev0, secure: secure, compressed: compressed})
				}
			}
		}
	}
	return out
}

// modesFor are the plain variants and one of the others, which depends on the
// name of the test and the seed of the sample; with RINGMSGR_LONG all.
func modesFor(t *testing.T) []variant {
	return inLongForm(allVariants, append(plainFor(t), oneOf(t, allVariants[len(variants):])))
}

// plainFor are the variants; without RINGMSGR_LONG one of each engine by turns.
func plainFor(t *testing.T) []variant {
	all, rev0 := inLongForm(true, false), oneOf(t, []bool{false, true})
	return slices.DeleteFunc(slices.Clone(variants), func(v variant) bool {
		return !all && v.rev0 != (rev0 == (v.backend == engines[0]))
	})
}

// oneOf is an element of list that depends on the name of the test and the seed of the
// sample.
func oneOf[T any](t *testing.T, list []T) T {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name())) // it does not fail
	return list[(uint64(h.Sum32())+seedOfSample(t))%uint64(len(list))]
}

// msgr1For is one of the variants with the older protocol; with RINGMSGR_LONG all.
func msgr1For(t *testing.T) []variant {
	return inLongForm(msgr1Variants, []variant{oneOf(t, msgr1Variants)})
}

// everyVariant runs a test over the plain variants, at the same time.
func everyVariant(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, plainFor(t), run)
}

// everyProtocol is everyVariant, and the older protocol as well.
func everyProtocol(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, append(plainFor(t), msgr1For(t)...), run)
}

// everyModeAndProtocol is everyMode, and the older protocol as well.
func everyModeAndProtocol(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, append(modesFor(t), msgr1For(t)...), run)
}

func overVariants(t *testing.T, list []variant, run func(t *testing.T, ctx context.Context, v variant)) {
	drivertest.LeavesNothing(t)
	spread(t, len(list), len(list), func(i int) string { return list[i].String() }, func(t *testing.T, i int) {
		run(t, deadline(t), list[i])
	})
}

// everyMode is everyVariant, encrypted and compressed as well. Both ends have
// to be nodes.
func everyMode(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, modesFor(t), run)
}

// configure makes a messenger of this variant.
func (v variant) configure(cfg *control.Config) {
	cfg.Protocol.Rev0 = v.rev0
	cfg.Plane.Driver.Backend = v.backend
	if v.secure {
		cfg.Auth.Modes = []auth.Mode{auth.Secure}
		p := &nodetest.Proof{Name: cfg.Name, Modes: cfg.Auth.Modes, Shy: true}
		cfg.Auth.Client, cfg.Auth.Server = p.Client(), p.Server()
	}
	if v.compressed {
		cfg.Protocol.Compression = control.Compression{
			Methods: methods(wire.CompressionSnappy), Min: -1, Peers: []wire.EntityType{wire.OSD, wire.Client}, Secure: v.secure,
		}
	}
}

// rev is the framing of msgr2.
func (v variant) rev() frame.Revision {
	if v.rev0 {
		return frame.Rev0
	}
	return frame.Rev1
}

// check says whether a connection is what the variant asks for.
func (v variant) check(t *testing.T, c *control.Conn) {
	t.Helper()
	protocol, mode, method := v.rev().String(), auth.CRC, wire.CompressionNone
	if v.secure {
		mode = auth.Secure
	}
	if v.compressed {
		method = wire.CompressionSnappy
	}
	if v.msgr1 {
		protocol = control.Msgr1
	}
	if i := c.Info(); i.Protocol != protocol || i.Mode != mode || i.Compression != method.String() {
		t.Errorf("the connection has %s, %v, %s, want %v, %v, %v", i.Protocol, i.Mode, i.Compression, protocol, mode, method)
	}
}

// handshakePoints are the points that a side passes in this variant.
func (v variant) handshakePoints(r nodetest.Role) []nodetest.Point {
	if v.msgr1 {
		return nodetest.HandshakePoints1(r)
	}
	list := nodetest.HandshakePoints(r)
	dir := []func(frame.Tag) nodetest.Point{nodetest.Write, nodetest.Read}
	if r == nodetest.Acceptor {
		slices.Reverse(dir)
	}
	ours, theirs := dir[0], dir[1] // the connector's frames, and the answers
	insert := func(before nodetest.Point, p ...nodetest.Point) {
		list = slices.Insert(list, slices.Index(list, before), p...)
	}
	if v.secure {
		insert(theirs(frame.TagAuthDone), theirs(frame.TagAuthBadMethod), ours(frame.TagAuthRequest),
			theirs(frame.TagAuthReplyMore), ours(frame.TagAuthRequestMore))
	}
	if v.compressed {
		insert(ours(frame.TagClientIdent), ours(frame.TagCompressionRequest), theirs(frame.TagCompressionDone))
	}
	return list
}

// breakPoints are handshakePoints, each once.
func (v variant) breakPoints(r nodetest.Role) (out []nodetest.Point) {
	for _, p := range v.handshakePoints(r) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// A test of every case that is too long to run each time runs a part of them,
// and another part the next time: the seed of the sample says which. It is the
// time, or RINGMSGR_SAMPLE; as many seeds in a row as the stride has run all.

// sampleSeed is the seed of this process.
var sampleSeed = uint64(time.Now().Unix())

func seedOfSample(t testing.TB) uint64 {
	t.Helper()
	s := os.Getenv("RINGMSGR_SAMPLE")
	if s == "" {
		return sampleSeed
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("RINGMSGR_SAMPLE: %v", err)
	}
	return seed
}

// sampleOf keeps one of stride, all with RINGMSGR_LONG. A stride that has no
// factor in common with the sizes of a product meets every part of it.
func sampleOf[T any](t testing.TB, all []T, stride int) []T {
	t.Helper()
	seed := seedOfSample(t)
	if os.Getenv("RINGMSGR_LONG") != "" {
		t.Logf("RINGMSGR_SAMPLE=%d: all %d cases", seed, len(all))
		return all
	}
	var out []T
	first := int(seed % uint64(min(stride, max(len(all), 1))))
	for i := first; i < len(all); i += stride {
		out = append(out, all[i])
	}
	t.Logf("RINGMSGR_SAMPLE=%d: %d of %d cases, one of %d from number %d on", seed, len(out), len(all), stride, first)
	return out
}

func TestSuccessiveSamplesCoverEverything(t *testing.T) {
	t.Setenv("RINGMSGR_LONG", "")
	for _, size := range []int{1, 7, 28, 29, 1000} {
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		const stride = 29
		met := make(map[int]int)
		for seed := uint64(1_000_000); seed < 1_000_000+stride; seed++ {
			t.Setenv("RINGMSGR_SAMPLE", strconv.FormatUint(seed, 10))
			some := sampleOf(t, all, stride)
			if len(some) < size/stride || len(some) == 0 {
				t.Errorf("seed %d has %d of %d cases", seed, len(some), size)
			}
			for _, i := range some {
				met[i]++
			}
		}
		if len(met) != size {
			t.Errorf("%d of %d cases in %d runs", len(met), size, stride)
		}
	}
}
