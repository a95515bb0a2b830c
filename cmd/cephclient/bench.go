package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// benchObject says what the last bench write left: the objects of the others.
const benchObject = "cephclient-bench"

// left is its content.
type left struct {
	Objects int `json:"objects"`
	Size    int `json:"size"`
}

// benchResult is what a bench prints.
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
	Latency latency     `json:"latency_us"`
	Buckets []histogram `json:"histogram"`
}

type latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// histogram counts the operations that took at most Below microseconds, but longer than the bucket before.
type histogram struct {
	Below int `json:"below_us"`
	Count int `json:"count"`
}

func bench(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.seconds+e.options.Timeout)
	defer cancel()
	p, err := e.options.pool(ctx, c, args[0])
	if err != nil {
		return err
	}
	o := e.options
	object := func(i int) rados.Object { return p.Object(fmt.Sprintf("%s-%d", benchObject, i)) }
	state := left{Size: int(o.size)}
	if args[1] != "write" {
		text, err := p.Object(benchObject).ReadAll(ctx)
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err != nil || state.Objects < 1 || state.Size < 1 || state.Size > maxSize {
			return errors.Join(fmt.Errorf("there are no objects of a bench write in pool %s", args[0]), err)
		}
	}
	next := atomic.Int64{}
	var do func(ctx context.Context, p []byte) error
	switch args[1] {
	case "write":
		do = func(ctx context.Context, data []byte) error { return object(int(next.Add(1)-1)).WriteFull(ctx, data) }
	case "seq", "rand":
		do = func(ctx context.Context, data []byte) error {
			i := int(next.Add(1)-1) % state.Objects
			if args[1] == "rand" {
				i = rand.IntN(state.Objects)
			}
			n, err := object(i).ReadInto(ctx, 0, data)
			if err == nil && n != state.Size {
				err = fmt.Errorf("object %s has %d bytes, want %d", object(i).Name(), n, state.Size)
			}
			return err
		}
	case "cleanup":
		for i := range state.Objects {
			err = errors.Join(err, object(i).Remove(ctx))
		}
		return errors.Join(err, p.Object(benchObject).Remove(ctx))
	default:
		return cli.Usagef("no bench %q, want write, seq, rand or cleanup", args[1])
	}
	r, err := measure(ctx, o.threads, state.Size, o.seconds, do)
	if args[1] == "write" {
		text, _ := json.Marshal(left{int(next.Load()), state.Size}) // of two numbers: cannot fail
		err = errors.Join(err, p.Object(benchObject).WriteFull(ctx, text))
	}
	if err != nil {
		return err
	}
	r.Mode = args[1]
	return printJSON(e.stdout, r)
}

// measure has threads do something again and again, each with memory of its own.
func measure(ctx context.Context, threads, size int, d time.Duration, do func(context.Context, []byte) error) (benchResult, error) {
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var workers sync.WaitGroup
	cpu, begin := cpuTime(), time.Now()
	for range threads {
		workers.Go(func() {
			var times []time.Duration
			var err error
			data := make([]byte, size)
			for now := time.Now(); err == nil && now.Sub(begin) < d; {
				err = do(ctx, data)
				end := time.Now()
				times, now = append(times, end.Sub(now)), end
			}
			mu.Lock()
			defer mu.Unlock()
			all, failed = append(all, times...), errors.Join(failed, err)
		})
	}
	workers.Wait()
	took := time.Since(begin)
	cpu = cpuTime() - cpu
	if failed != nil {
		return benchResult{}, failed
	}
	slices.Sort(all)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	var sum time.Duration
	var buckets []histogram
	for _, t := range all {
		sum += t
		below := 1
		for us(t) > float64(below) {
			below *= 2
		}
		if n := len(buckets); n == 0 || buckets[n-1].Below != below {
			buckets = append(buckets, histogram{Below: below})
		}
		buckets[len(buckets)-1].Count++
	}
	n := len(all)
	return benchResult{
		Threads: threads, Size: size, Seconds: took.Seconds(), Operations: n, PerSecond: float64(n) / took.Seconds(),
		MBytes: float64(n) * float64(size) / 1e6 / took.Seconds(), CPU: us(cpu) / float64(n), Buckets: buckets,
		Latency: latency{us(all[0]), us(sum) / float64(n), us(all[n/2]), us(all[n*99/100]), us(all[n-1])},
	}, nil
}

// cpuTime is that of this process until now.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
