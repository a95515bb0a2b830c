package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// load puts and gets random keys, --depth requests at a time on each connection.
func (e *env) load(ctx context.Context, args []string) error {
	size, err := quantity.ParseBytes(e.size, maxValue)
	share, bad := strconv.ParseFloat(strings.TrimSuffix(e.puts, "%"), 64)
	switch {
	case e.conns < 1 || e.depth < 1 || e.keys < 1 || e.duration <= 0:
		return cli.Usagef("--conns, --depth, --keys, --duration: want more than nothing")
	case err != nil || size < 1:
		return cli.Usagef("--size %q: want 1 to %s", e.size, quantity.Bytes(maxValue))
	case bad != nil || share < 0 || share > 100:
		return cli.Usagef("--puts %q: want 0%% to 100%%", e.puts)
	}
	m, clients, err := e.dial(ctx, args[0], e.conns)
	if err != nil {
		return err
	}
	value := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(value)          // never fails
	times := make([][2]*latency.Histogram, e.conns*e.depth) // of gets and puts
	var put atomic.Int64
	err = each(len(times), func(i int) (err error) { // every key is put
		times[i] = [2]*latency.Histogram{latency.New(), latency.New()}
		for key := put.Add(1); key <= int64(e.keys) && err == nil; key = put.Add(1) {
			_, err = clients[i%e.conns].do(ctx, msgPut, strconv.FormatInt(key, 10), value)
		}
		return err
	})
	began := time.Now()
	if err == nil {
		err = each(len(times), func(i int) (err error) {
			for time.Since(began) < e.duration && err == nil {
				kind, typ, data := 0, msgGet, []byte(nil)
				if rand.Float64()*100 < share {
					kind, typ, data = 1, msgPut, value
				}
				key, sent := strconv.Itoa(1+rand.IntN(e.keys)), time.Now()
				data, err = clients[i%e.conns].do(ctx, typ, key, data)
				times[i][kind].Record(time.Since(sent))
				if kind == 0 && err == nil && len(data) != len(value) {
					err = fmt.Errorf("a value has %d bytes, and had %d", len(data), len(value))
				}
			}
			return err
		})
	}
	for kind, name := range [2]string{"gets", "puts"} {
		all := latency.New()
		for i := 0; i < len(times) && err == nil; i++ {
			all.Add(times[i][kind])
		}
		if rate := float64(all.Count()) / time.Since(began).Seconds(); rate > 0 {
			fmt.Fprintf(e.stdout, "%s %s/s, %s; p50 %s, p99 %s, p99.9 %s\n", name,
				quantity.Count(rate), quantity.Rate(rate*float64(size), "B/s"),
				quantity.Duration(all.Quantile(0.5)), quantity.Duration(all.Quantile(0.99)),
				quantity.Duration(all.Quantile(0.999)))
		}
	}
	return errors.Join(err, shutdown(m))
}

// each runs f for n lanes at once. The error is that of one of them.
func each(n int, f func(lane int) error) (err error) {
	ended := make(chan error, n)
	for i := range n {
		go func() { ended <- f(i) }()
	}
	for range n {
		if one := <-ended; one != nil {
			err = one
		}
	}
	return err
}
