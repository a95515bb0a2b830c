package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
)

const keys = 30

// model makes requests and knows what the store must have.
type model struct {
	t     testing.TB
	under sync.WaitGroup // requests under way

	mu      sync.Mutex
	keys    [keys]state
	version uint32
	life    int  // number of the server's process
	faults  bool // requests may be refused
}

// state of a key. Version 0 stands for no value.
type state struct {
	acked uint32
	maybe []attempt // since then, that were not acknowledged
}

type attempt struct {
	version uint32
	life    int
}

func nameOf(key int) []byte { return fmt.Appendf(nil, "key-%03d", key) }

// valueOf is a value of up to 1500 bytes, of some versions 20 000, that begins with its version.
func valueOf(key int, version uint32) []byte {
	if version == 0 {
		return nil
	}
	most := 1500
	if version%16 == 0 {
		most = 20000
	}
	text := fmt.Appendf(nil, "%d of %d,", version, key)
	n := max(len(text), int(version*2654435761>>8)%most)
	return bytes.Repeat(text, 1+n/len(text))[:n]
}

func pick(rng *rand.Rand) uint16 {
	return []uint16{msgPut, msgPut, msgPut, msgGet, msgDelete}[rng.IntN(5)]
}

// ask makes a request; behind is called once it has ended.
func (o *model) ask(conn *control.Conn, typ uint16, key int, behind func()) {
	o.mu.Lock()
	version := uint32(0)
	if typ == msgPut {
		o.version++
		version = o.version
	}
	o.mu.Unlock()
	o.under.Add(1)
	r := &control.Request{Message: control.NewMessage(typ, nameOf(key), valueOf(key, version))}
	r.Done = func(_ *control.Request, m *control.Message, err error) {
		o.answered(typ, key, version, m, err)
		behind()
		o.under.Done()
	}
	if err := conn.Start(r); err != nil {
		r.Done(r, nil, err) // it was not asked
	}
}

// answered judges an answer; err says that there is none.
func (o *model) answered(typ uint16, key int, version uint32, m *control.Message, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := &o.keys[key]
	switch {
	case err != nil || m.Type == msgFailed:
		if err == nil && !o.faults {
			o.t.Errorf("key %d: refused: %s", key, m.Front)
		}
		if typ != msgGet {
			k.maybe = append(k.maybe, attempt{version, o.life})
		}
	case m.Type == msgNotFound:
		o.found(k, key, 0)
	case typ == msgGet:
		if _, err := fmt.Sscanf(string(m.Data), "%d of", &version); err != nil || !bytes.Equal(m.Data, valueOf(key, version)) {
			o.t.Errorf("key %d: a wrong value of %d bytes", key, len(m.Data))
			return
		}
		o.found(k, key, version)
	default:
		k.acked, k.maybe = version, nil
	}
}

// found takes what is there: what was acknowledged, or what an earlier process was asked for,
// which is there from its end on, or never.
func (o *model) found(k *state, key int, version uint32) {
	ok := version == k.acked || slices.ContainsFunc(k.maybe, func(a attempt) bool { return a.version == version && a.life < o.life })
	if !ok {
		o.t.Errorf("key %d has version %d; %d was acknowledged, then asked for: %v (this is life %d)", key, version, k.acked, k.maybe, o.life)
	}
	k.acked = version
	k.maybe = slices.DeleteFunc(k.maybe, func(a attempt) bool { return a.life < o.life })
}

// readAll reads every key.
func (o *model) readAll(conn *control.Conn) {
	for key := range keys {
		o.ask(conn, msgGet, key, func() {})
	}
	o.under.Wait()
}

// died is the end of a process.
func (o *model) died() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.life++
}

func (o *model) present() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.keys {
		if o.keys[key].acked != 0 {
			names = append(names, string(nameOf(key)))
		}
	}
	return names
}
