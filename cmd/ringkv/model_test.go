package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
)

const keys = 30

// model makes requests and knows what the store must have.
type model struct {
	pair.Ledger
	t       testing.TB
	under   sync.WaitGroup // requests under way
	version atomic.Uint64
	faults  atomic.Bool // requests may be refused
}

func nameOf(key int) string { return fmt.Sprintf("key-%03d", key) }

// valueOf is up to 1500 bytes, of some versions 20 000, that begin with the version.
func valueOf(key int, version uint64) []byte {
	if version == 0 {
		return nil
	}
	most := 1500
	if version%16 == 0 {
		most = 20000
	}
	text := fmt.Appendf(nil, "%d of %d,", version, key)
	n := max(len(text), int(uint32(version)*2654435761>>8)%most)
	return bytes.Repeat(text, 1+n/len(text))[:n]
}

func pick(rng *rand.Rand) uint16 {
	return []uint16{msgPut, msgPut, msgPut, msgGet, msgDelete}[rng.IntN(5)]
}

// ask makes a request; behind is called once it has ended.
func (o *model) ask(conn *control.Conn, typ uint16, key int, behind func()) {
	version := uint64(0)
	if typ == msgPut {
		version = o.version.Add(1)
	}
	o.under.Add(1)
	m := control.NewMessage(typ, []byte(nameOf(key)), valueOf(key, version))
	r := &control.Request{Message: m}
	r.Done = func(_ *control.Request, m *control.Message, err error) {
		o.answered(typ, key, version, m, err)
		behind()
		o.under.Done()
	}
	if err := conn.Start(r); err != nil {
		r.Done(r, nil, err) // it was not asked
	}
}

// all asks the same of the first n keys, and waits.
func (o *model) all(conn *control.Conn, typ uint16, n int) {
	for key := range n {
		o.ask(conn, typ, key, func() {})
	}
	o.under.Wait()
}

// answered judges an answer; err says that there is none.
func (o *model) answered(typ uint16, key int, version uint64, m *control.Message, err error) {
	switch {
	case err == nil && m.Type == msgFailed && !o.faults.Load():
		o.t.Errorf("key %d: refused: %s", key, m.Front)
	case (err != nil || m.Type == msgFailed) && typ != msgGet:
		o.Refused(nameOf(key), version)
	case err != nil || m.Type == msgFailed:
	case m.Type == msgDone && typ != msgGet:
		o.Acknowledged(nameOf(key), version)
	default:
		version = 0
		_, _ = fmt.Sscanf(string(m.Data), "%d of", &version)
		if !bytes.Equal(m.Data, valueOf(key, version)) {
			o.t.Errorf("key %d: a wrong value of %d bytes", key, len(m.Data))
		}
		if err := o.Found(nameOf(key), version); err != nil {
			o.t.Error(err)
		}
	}
}
