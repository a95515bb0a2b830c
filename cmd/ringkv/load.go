package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// load puts all keys, and then puts and gets random ones, in --depth lanes on each connection.
func (e *env) load(ctx context.Context, args []string) error {
	size, err := quantity.ParseBytes(e.size, maxValue)
	switch {
	case e.conns < 1 || e.depth < 1 || e.keys < 1 || e.duration <= 0:
		return cli.Usagef("--conns, --depth, --keys, --duration: want more than nothing")
	case err != nil || size < 1:
		return cli.Usagef("--size %q: want 1 to %s", e.size, quantity.Bytes(maxValue))
	case e.puts < 0 || e.puts > 100:
		return cli.Usagef("--puts %v: want 0 to 100", e.puts)
	}
	value, times := make([]byte, size), make([][2]*latency.Histogram, e.conns*e.depth) // of gets and puts
	_, _ = rand.NewChaCha8([32]byte{}).Read(value)                                     // never fails
	return e.dial(ctx, args[0], e.conns, func(clients []client) error {
		var put atomic.Int64
		err := each(len(times), func(i int) (err error) {
			times[i] = [2]*latency.Histogram{latency.New(), latency.New()}
			for key := put.Add(1); key <= int64(e.keys) && err == nil; key = put.Add(1) {
				_, err = clients[i%e.conns].do(ctx, msgPut, strconv.FormatInt(key, 10), value)
			}
			return err
		})
		if err != nil {
			return err
		}
		began := time.Now()
		err = each(len(times), func(i int) (err error) {
			for time.Since(began) < e.duration && err == nil {
				kind, typ, data := 0, msgGet, []byte(nil)
				if rand.Float64()*100 < e.puts {
					kind, typ, data = 1, msgPut, value
				}
				key, sent := strconv.Itoa(1+rand.IntN(e.keys)), time.Now()
				data, err = clients[i%e.conns].do(ctx, typ, key, data)
				times[i][kind].Record(time.Since(sent))
				if typ == msgGet && err == nil && !bytes.Equal(data, value) {
					err = fmt.Errorf("the value of key %s is not what was put", key)
				}
			}
			return err
		})
		for kind, name := range [2]string{"gets", "puts"} {
			all := latency.New()
			for _, lane := range times {
				all.Add(lane[kind])
			}
			if rate := float64(all.Count()) / time.Since(began).Seconds(); rate > 0 && err == nil {
				fmt.Fprintf(e.stdout, "%s %s/s, %s; p50 %s, p99 %s\n", name,
					quantity.Count(rate), quantity.Rate(rate*float64(size), "B/s"),
					quantity.Duration(all.Quantile(0.5)), quantity.Duration(all.Quantile(0.99)))
			}
		}
		return err
	})
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
