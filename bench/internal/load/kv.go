package load

import (
	"context"
	"errors"

	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
	"github.com/ringmsgr/ringmsgr/cmd/shared/kvformat"
)

// What a client fills an empty server with: the connections, and the requests on each.
const (
	FillConns = 16
	FillDepth = 16
)

// KVOptions say what requests a KV makes.
type KVOptions struct {
	Options            // Size is that of a value
	Work    kv.Options `json:"work"`
}

// Validate reports everything that is wrong with o.
func (o KVOptions) Validate() error {
	errs := []error{o.Options.Validate(), o.Work.Validate(o.Conns*o.Depth, o.Size)}
	if o.Secure || o.Msgr1 || o.Raw {
		errs = append(errs, errors.New("key-value servers are measured in crc mode of msgr2"))
	}
	return errors.Join(errs...)
}

// Filling is what to open to put all keys.
func (o KVOptions) Filling() KVOptions {
	o.Conns, o.Depth = FillConns, FillDepth
	o.Work.Put = true
	return o
}

// KV is a set of connections that put or get values, with the messages of cmd/ringkv. Each
// value that is read is checked, byte by byte.
type KV struct {
	*slots
	kv    *kv.Work
	opt   KVOptions
	turns []kv.Turn // of each slot
	key   []byte    // of the last request
}

// OpenKV connects, and puts all keys that the ledger of the server says were never put.
func OpenKV(ctx context.Context, o KVOptions, ledger *kv.Ledger) (*KV, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if !ledger.Whole() {
		k, err := connectKV(ctx, o.Filling(), ledger)
		if err != nil {
			return nil, err
		}
		k.kv.FillRest()
		err = k.exhaust()
		k.Close()
		if err != nil {
			return nil, err
		}
	}
	return connectKV(ctx, o, ledger)
}

func connectKV(ctx context.Context, o KVOptions, ledger *kv.Ledger) (*KV, error) {
	k := &KV{opt: o, kv: kv.NewWork(o.Work, o.Size, o.Conns*o.Depth, ledger), turns: make([]kv.Turn, o.Conns*o.Depth)}
	var err error
	if k.slots, err = openSlots(ctx, o.Options, k, answeredBy(kvformat.Done)); err != nil {
		return nil, err
	}
	return k, nil
}

// Run loads the server for one slice, waits until every request is answered, and reads
// back some of what was put. The calling goroutine should be locked to its thread. After an
// error the KV can only be closed.
func (k *KV) Run(slice Slice) (Result, error) {
	k.kv.Measure()
	res, err := k.meter.run(slice, k.slots, k.all())
	if err != nil {
		return res, err
	}
	res.PerReply = k.conns[0].wire.size(k.opt.answerSize())
	if k.kv.ReadBack() {
		err = k.exhaust()
	}
	return res, err
}

// answerSize is how many bytes of data an answer has.
func (o KVOptions) answerSize() int {
	if o.Work.Put {
		return 0
	}
	return o.Size
}

// Verify reads all keys.
func (k *KV) Verify() error {
	k.kv.ReadAll()
	return k.exhaust()
}

// ask implements work.
func (k *KV) ask(t *slot) (typ uint16, front []byte, data int, ok bool) {
	turn, ok := k.kv.Next(t.number)
	k.turns[t.number] = turn
	k.key = k.kv.AppendKey(k.key[:0], turn.Key)
	if turn.Put {
		return kvformat.Put, k.key, k.opt.Size, ok
	}
	return kvformat.Get, k.key, 0, ok
}

// data implements work.
func (k *KV) data(p []byte, t *slot) {
	if turn := k.turns[t.number]; turn.Put {
		k.kv.Fill(p, turn.Key, turn.Generation)
	}
}

// check implements work.
func (k *KV) check(t *slot, data []byte) error { return k.kv.Done(k.turns[t.number], data) }
