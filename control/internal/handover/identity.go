package handover

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Hello is the identity of the successor.
type Hello struct {
	Entity   wire.EntityName
	Nonce    uint32
	AnyNonce bool // it takes that of the predecessor
}

// succeeds says whether the offer is for the sender of hello.
func (h *Hello) succeeds(o *Offer) bool {
	return h.Entity == o.Entity && (h.AnyNonce || h.Nonce == o.Nonce)
}

func (h *Hello) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, handoverMagic)
	dst = le.AppendUint16(dst, handoverVersion)
	dst = appendEntity(dst, h.Entity)
	dst = le.AppendUint32(dst, h.Nonce)
	return wire.AppendBool(dst, h.AnyNonce)
}

// readVersion reads the version, with which both sides begin.
func readVersion(r *wire.Reader) {
	if m := r.U64(); r.Err() == nil && m != handoverMagic {
		r.Fail(Errorf("the other side speaks something else"))
	}
	if v := r.U16(); r.Err() == nil && v != handoverVersion {
		r.Fail(Errorf("version %d, we speak %d", v, handoverVersion))
	}
}

func decodeHello(p []byte) (h Hello, err error) {
	r := wire.NewReader(p)
	readVersion(r)
	h = Hello{Entity: readEntity(r), Nonce: r.U32(), AnyNonce: r.Bool()}
	return h, broken(recordHello, r)
}

func broken(t recordType, r *wire.Reader) error {
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrHandOver, t, err)
	}
	return nil
}

// Offer is the identity of the predecessor, and the number of records that it is about to
// send.
type Offer struct {
	Entity    wire.EntityName
	Nonce     uint32
	Number    int64
	Bound     bool
	Addrs     wire.AddrVec
	Listeners uint32 // descriptors
	Steering  uint32 // descriptors
}

func (o *Offer) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, handoverMagic)
	dst = le.AppendUint16(dst, handoverVersion)
	dst = appendEntity(dst, o.Entity)
	dst = le.AppendUint32(dst, o.Nonce)
	dst = le.AppendUint64(dst, uint64(o.Number))
	dst = wire.AppendBool(dst, o.Bound)
	dst = o.Addrs.AppendTo(dst)
	dst = le.AppendUint32(dst, o.Listeners)
	return le.AppendUint32(dst, o.Steering)
}

func decodeOffer(p []byte) (o Offer, err error) {
	r := wire.NewReader(p)
	readVersion(r)
	o = Offer{
		Entity: readEntity(r), Nonce: r.U32(), Number: r.S64(), Bound: r.Bool(), Addrs: r.AddrVec(),
		Listeners: r.U32(), Steering: r.U32(),
	}
	if o.Listeners > filesMax || o.Steering > filesMax {
		r.Fail(Errorf("%d descriptors", uint64(o.Listeners)+uint64(o.Steering)))
	}
	return o, broken(recordOffer, r)
}

// Done ends the sessions, and has their number.
type Done struct {
	Last     Attempts
	Sessions uint32
	Messages uint64
}

func (d *Done) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, d.Last.Msgr2)
	dst = le.AppendUint64(dst, d.Last.Msgr1)
	dst = le.AppendUint32(dst, d.Sessions)
	return le.AppendUint64(dst, d.Messages)
}

func decodeDone(p []byte) (d Done, err error) {
	r := wire.NewReader(p)
	d = Done{Last: Attempts{Msgr2: r.U64(), Msgr1: r.U64()}, Sessions: r.U32(), Messages: r.U64()}
	return d, broken(recordDone, r)
}
