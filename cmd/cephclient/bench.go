package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// benchObject has the state of the last bench write: which objects there are. Their names follow it.
const benchObject = "cephclient-bench"

// left is its content.
type left struct {
	Objects int `json:"objects"`
	Size    int `json:"size"`
}

// benchResult is the output of a bench.
type benchResult struct {
	Mode       string  `json:"mode"`
	Threads    int     `json:"threads"`
	Size       int     `json:"size"`
	Seconds    float64 `json:"seconds"`
	Operations int     `json:"operations"`
	PerSecond  float64 `json:"operations_per_second"`
	MBytes     float64 `json:"megabytes_per_second"`
	// CPU is the time of this process, by user and kernel, in microseconds per operation.
	CPU     float64     `json:"cpu_us_per_operation"`
	Latency cli.Summary `json:"latency_us"`
	Buckets []histogram `json:"histogram"`
}

// histogram counts the operations that took at most Below microseconds, but longer than the bucket before.
type histogram struct {
	Below int   `json:"below_us"`
	Count int64 `json:"count"`
}

func bench(ctx context.Context, e env, p rados.Pool, args []string) (err error) {
	o, mode, whole := e.options, args[0], ctx
	ctx, cancel := context.WithTimeout(ctx, o.seconds+o.Timeout)
	defer cancel()
	object := func(i int) rados.Object { return p.Object(fmt.Sprintf("%s-%d", benchObject, i)) }
	state := left{Size: int(o.size)}
	if mode == "seq" || mode == "rand" {
		text, err := p.Object(benchObject).ReadAll(ctx)
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err != nil || state.Objects < 1 || state.Size < 1 || state.Size > maxSize {
			return errors.Join(fmt.Errorf("there are no objects of a bench write in pool %s", p.Name()), err)
		}
	}
	var next atomic.Int64
	begin := func(i int, data []byte, done func(error)) error {
		var op rados.ReadOp
		n := op.ReadInto(0, data)
		return object(i).Start(ctx, &op, func(_ uint64, err error) {
			if err == nil && n.Value != state.Size {
				err = fmt.Errorf("object %s has %d bytes, want %d", object(i).Name(), n.Value, state.Size)
			}
			done(err)
		})
	}
	index := func() int { return int(next.Add(1)-1) % state.Objects }
	switch mode {
	case "seq":
	case "rand":
		index = func() int { return rand.IntN(state.Objects) }
	case "write":
		index = func() int { return int(next.Add(1) - 1) }
		begin = func(i int, data []byte, done func(error)) error {
			var op rados.WriteOp
			op.WriteFull(data)
			return object(i).Start(ctx, &op, func(_ uint64, err error) { done(err) })
		}
	case "cleanup":
		return cleanup(whole, e, p)
	default:
		return cli.Usagef("no bench %q, want write, seq, rand or cleanup", mode)
	}
	data := make([][]byte, o.threads) // of each thread its own
	for i := range data {
		data[i] = make([]byte, state.Size)
	}
	before, err := cli.ReadCPU(os.Getpid())
	if err != nil {
		return err
	}
	calls, failed := cli.Loop(o.threads, math.MaxUint64, o.seconds, func(chain int, done func(string, error)) {
		ended := func(err error) { done(mode, err) }
		if err := begin(index(), data[chain], ended); err != nil {
			ended(err)
		}
	})
	after, err := cli.ReadCPU(os.Getpid())
	if mode == "write" {
		text, _ := json.Marshal(left{int(next.Load()), state.Size}) // of two numbers: cannot fail
		err = errors.Join(err, e.within(whole, func(ctx context.Context) error { return p.Object(benchObject).WriteFull(ctx, text) }))
	}
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	return printJSON(e.stdout, result(mode, o.threads, state.Size, &calls, after-before))
}

// cleanup removes the objects of all bench writes in the pool's namespace, and no others.
func cleanup(ctx context.Context, e env, p rados.Pool) error {
	ours := regexp.MustCompile("^" + benchObject + "(-[0-9]+)?$")
	var found []rados.Object
	err := through(ctx, e, p.Objects, func(_ io.Writer, o rados.Entry) {
		if ours.MatchString(o.Name) {
			found = append(found, p.WithLocator(o.Locator).Object(o.Name))
		}
	})
	return errors.Join(err, e.each(ctx, len(found), func(ctx context.Context, i int) error { return found[i].Remove(ctx) }))
}

func result(mode string, threads, size int, calls *cli.Calls, cpu time.Duration) benchResult {
	h, rate := calls.Of(mode), calls.Rate(mode)
	r := benchResult{
		Mode: mode, Threads: threads, Size: size, Seconds: calls.Took.Seconds(), Operations: int(h.Count()), PerSecond: rate,
		MBytes: rate * float64(size) / 1e6, CPU: float64(cpu.Nanoseconds()) / 1e3 / float64(h.Count()), Latency: h.Summary(),
	}
	h.Doublings(func(below int, count int64) { r.Buckets = append(r.Buckets, histogram{below, count}) })
	return r
}
