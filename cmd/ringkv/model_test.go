package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/pair"
)

const keys = 30

// model makes requests and knows what the store must have.
type model struct {
	pair.Ledger
	t       testing.TB
	ctx     context.Context
	rng     *rand.Rand
	clients []client
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

// ask makes a request and judges the answer. The error says that there is none.
func (o *model) ask(typ uint16, key int) error {
	version := uint64(0)
	if typ == msgPut {
		version = o.version.Add(1)
	}
	data, err := o.clients[key%len(o.clients)].do(o.ctx, typ, nameOf(key), valueOf(key, version))
	refused := errors.Is(err, errRefused)
	switch {
	case refused && !o.faults.Load():
		o.t.Errorf("key %d: %v", key, err)
	case err != nil && !errors.Is(err, errNotFound):
		if typ != msgGet {
			o.Refused(nameOf(key), version)
		}
		if !refused {
			return err
		}
	case err == nil && typ != msgGet:
		o.Acknowledged(nameOf(key), version)
	default:
		version = 0
		_, _ = fmt.Sscanf(string(data), "%d of", &version)
		if !bytes.Equal(data, valueOf(key, version)) {
			o.t.Errorf("key %d: a wrong value of %d bytes", key, len(data))
		}
		if err := o.Found(nameOf(key), version); err != nil {
			o.t.Error(err)
		}
	}
	return nil
}

// all asks the same of the first n keys, and waits.
func (o *model) all(typ uint16, n int) {
	for key := range n {
		o.under.Go(func() { _ = o.ask(typ, key) })
	}
	o.under.Wait()
}
