package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
	"github.com/ringmsgr/ringmsgr/control"
)

// load puts and gets random keys, --depth requests at a time on each connection.
func load(ctx context.Context, e *env, args []string) error {
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
	m, conns, err := e.dial(ctx, args[0], e.conns)
	if err != nil {
		return err
	}
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	var lanes []*lane
	for i := range e.conns * e.depth {
		lanes = append(lanes, &lane{conn: conns[i%e.conns], value: value, keys: e.keys, share: share / 100, key: i, step: e.conns * e.depth})
	}
	err = errors.Join(phase(lanes), ctx.Err()) // every key is put
	began := time.Now()
	for _, l := range lanes {
		l.key, l.step, l.times = 0, 0, [2]*latency.Histogram{latency.New(), latency.New()}
		l.over = func() bool { return time.Since(began) >= e.duration || ctx.Err() != nil }
	}
	if err == nil {
		err = phase(lanes)
	}
	took := time.Since(began).Seconds()
	for put, name := range [2]string{"gets", "puts"} {
		all := latency.New()
		for _, l := range lanes {
			all.Add(l.times[put])
		}
		if rate := float64(all.Count()) / took; rate > 0 {
			fmt.Fprintf(e.stdout, "%s %s/s, %s; p50 %s, p99 %s, p99.9 %s\n", name, quantity.Count(rate), quantity.Rate(rate*float64(size), "B/s"),
				quantity.Duration(all.Quantile(0.5)), quantity.Duration(all.Quantile(0.99)), quantity.Duration(all.Quantile(0.999)))
		}
	}
	return errors.Join(err, shutdown(m))
}

// phase has all lanes go on until their end. The error is that of one of them.
func phase(lanes []*lane) (err error) {
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Add(1)
		l.Done, l.ended = l.answered, all.Done
		l.next()
	}
	all.Wait()
	for _, l := range lanes {
		if l.err != nil {
			err = l.err
		}
	}
	return err
}

// lane is one request after the other. Owner: the core of its connection, once it has begun.
type lane struct {
	control.Request
	conn      *control.Conn
	value     []byte
	keys      int
	share     float64 // of puts
	key, step int     // with a step: the keys that it puts
	put       int     // 1: it is one
	sent      time.Time
	times     [2]*latency.Histogram // of gets and puts
	over      func() bool
	ended     func()
	err       error
}

func (l *lane) next() {
	key := l.key
	if l.put = 1; l.step > 0 {
		l.key += l.step
	} else if key = rand.IntN(l.keys); rand.Float64() >= l.share {
		l.put = 0
	}
	if key >= l.keys || l.step == 0 && l.over() {
		l.ended()
		return
	}
	l.Message = control.NewMessage(msgGet, fmt.Appendf(nil, "key-%08d", key), nil)
	if l.put == 1 {
		l.Message.Type, l.Message.Data = msgPut, l.value
	}
	l.sent = time.Now()
	if err := l.conn.Start(&l.Request); err != nil {
		l.err = err // from here on nobody else has the lane
		l.Message.Release()
		l.ended()
	}
}

// answered takes the answer, on the core.
func (l *lane) answered(_ *control.Request, m *control.Message, err error) {
	took := time.Since(l.sent)
	if l.err = err; err == nil {
		l.err = verdict(m)
	}
	if l.err == nil && l.put == 0 && len(m.Data) != len(l.value) {
		l.err = fmt.Errorf("a value has %d bytes, and had %d", len(m.Data), len(l.value))
	}
	switch {
	case l.err != nil:
		l.ended()
		return
	case l.step == 0:
		l.times[l.put].Record(took)
	}
	l.next()
}
