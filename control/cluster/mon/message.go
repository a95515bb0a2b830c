package mon

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Types of messages.
const (
	typePing         = 2
	typeMonMap       = 4
	typeMonGetMap    = 5
	typeSubscribe    = 15
	typeSubscribeAck = 16
	typeAuth         = 17
	typeAuthReply    = 18
	typeGetVersion   = 19
	typeVersion      = 20
	typeOSDMap       = 41
	typeCommand      = 50
	typeCommandAck   = 51
	typeConfig       = 62
	typeMgrMap       = 0x704
)

var le = binary.LittleEndian

// message makes a message of a version, which is compatible with the first one.
func message(typ uint16, tid uint64, version uint16, front []byte) *control.Message {
	m := control.NewMessage(typ, front, nil)
	m.TID, m.Version, m.CompatVersion = tid, version, 1
	return m
}

// appendPaxos appends the head of messages to monitors: version 0, no monitor,
// no transaction of it.
func appendPaxos(dst []byte) []byte {
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint16(dst, 0xffff)
	return le.AppendUint64(dst, 0)
}

const paxosSize = 18

// bad wraps the error of a reader.
func bad(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", errMessage, what, err)
}

// subscribeMessage makes MMonSubscribe: to maps by their names, each from an epoch on.
func subscribeMessage(subs map[string]uint64) *control.Message {
	b := le.AppendUint32(nil, uint32(len(subs)))
	for _, name := range slices.Sorted(maps.Keys(subs)) {
		b = le.AppendUint64(wire.AppendString(b, name), subs[name])
		b = append(b, 0) // it does not end with the first map
	}
	b = wire.AppendString(b, "") // host name: none of the monitor's business
	return message(typeSubscribe, 0, 3, b)
}

// A core decodes these; subscriptions also of peers that have not logged in.
const (
	maxSubs    = 1024    // subscriptions of one message that count
	maxCommand = 1 << 20 // bytes of JSON of a command
)

// decodeSubscribe reads the front of MMonSubscribe.
func decodeSubscribe(front []byte) (map[string]uint64, error) {
	r := wire.NewReader(front)
	subs := make(map[string]uint64)
	for range min(r.Count(13), maxSubs) { // a length, a number and flags
		name := r.Str()
		subs[name] = r.U64()
		if r.U8(); r.Err() != nil {
			break
		}
	}
	return subs, bad("MMonSubscribe", r.Err())
}

// commandMessage makes MMonCommand. command is one JSON object, data its input.
func commandMessage(tid uint64, fsid FSID, command, data []byte) *control.Message {
	b := append(appendPaxos(nil), fsid[:]...)
	b = le.AppendUint32(b, 1)
	m := message(typeCommand, tid, 1, wire.AppendBlob(b, command))
	m.Data = data
	return m
}

// decodeCommand reads the front of MMonCommand: its JSON.
func decodeCommand(front []byte) ([]byte, error) {
	r := wire.NewReader(front)
	r.Skip(paxosSize + len(FSID{}))
	if n := r.Count(4); n != 1 && r.Err() == nil {
		r.Fail(fmt.Errorf("%w: %d commands in one", wire.ErrMalformed, n))
	}
	text := r.Blob()
	if len(text) > maxCommand {
		r.Fail(fmt.Errorf("%w: %d bytes of JSON", wire.ErrMalformed, len(text)))
	}
	return text, bad("MMonCommand", r.Err())
}

// decodeCommandAck reads the front of MMonCommandAck.
func decodeCommandAck(front []byte) (result int32, status string, err error) {
	r := wire.NewReader(front)
	r.Skip(paxosSize)
	result, status = r.S32(), r.Str()
	return result, status, bad("command ack", r.Err())
}

// authMessage makes MAuth.
func authMessage(method auth.Method, payload []byte) *control.Message {
	b := le.AppendUint32(appendPaxos(nil), uint32(method))
	b = wire.AppendBlob(b, payload)
	return message(typeAuth, 0, 1, le.AppendUint32(b, 0))
}

func decodeAuth(front []byte) (method auth.Method, payload []byte, err error) {
	r := wire.NewReader(front)
	r.Skip(paxosSize)
	method, payload = auth.Method(r.U32()), r.Blob()
	return method, payload, bad("MAuth", r.Err())
}

// authReply is MAuthReply.
type authReply struct {
	method   auth.Method
	result   int32
	globalID uint64
	payload  []byte
	text     string
}

func (a *authReply) message(tid uint64) *control.Message {
	b := le.AppendUint32(nil, uint32(a.method))
	b = le.AppendUint32(b, uint32(a.result))
	b = le.AppendUint64(b, a.globalID)
	b = wire.AppendBlob(b, a.payload)
	return message(typeAuthReply, tid, 1, wire.AppendString(b, a.text))
}

// decodeAuthReply reads the front of MAuthReply; the payload aliases it.
func decodeAuthReply(front []byte) (authReply, error) {
	r := wire.NewReader(front)
	a := authReply{method: auth.Method(r.U32()), result: r.S32(), globalID: r.U64(), payload: r.Blob()}
	a.text = r.Str()
	return a, bad("MAuthReply", r.Err())
}

// FSID is the id of a cluster.
type FSID [16]byte

// String is the usual form, with dashes.
func (f FSID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", f[:4], f[4:6], f[6:8], f[8:10], f[10:])
}

// MarshalText implements encoding.TextMarshaler.
func (f FSID) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// MonMap lists the monitors of a cluster.
type MonMap struct {
	FSID    FSID      `json:"fsid"`
	Epoch   uint32    `json:"epoch"`
	Changed time.Time `json:"changed"`
	Mons    []Mon     `json:"mons"` // in the order of their names
	// AuthEpoch rises when the monitors have thrown the secrets of services away: a client
	// then renews its tickets at once. Ciphers are the kinds of keys that are allowed and
	// made. Maps of before 20.2 have neither, nor has a map here without Ciphers.Service.
	AuthEpoch uint32        `json:"auth_epoch,omitempty"`
	Ciphers   cephx.Ciphers `json:"ciphers,omitzero"`
}

// Mon is one monitor.
type Mon struct {
	Name  string       `json:"name"`
	Addrs wire.AddrVec `json:"addrs"`
}

// decodeMonMap reads a monmap as MMonMap and monmaptool have it.
func decodeMonMap(p []byte) (MonMap, error) {
	var m MonMap
	r := wire.NewReader(p)
	r.Envelope(9, func(version uint8, r *wire.Reader) {
		if version < 6 {
			r.Fail(fmt.Errorf("%w: monmap of version %d", wire.ErrMalformed, version))
			return
		}
		r.Copy(m.FSID[:])
		m.Epoch = r.U32()
		m.Changed = r.Utime()
		r.Utime() // created
		for range 2 {
			r.Envelope(1, func(uint8, *wire.Reader) {}) // features
		}
		// An entry has at least a name, a header, a name and addresses.
		for range r.Count(18) {
			var e Mon
			e.Name = r.Str()
			r.Envelope(5, func(_ uint8, r *wire.Reader) {
				r.Str()
				e.Addrs = r.AddrVec()
			})
			if r.Err() != nil {
				return
			}
			m.Mons = append(m.Mons, e)
		}
		if version >= 10 {
			m.readAuth(r)
		}
	})
	return m, bad("monmap", r.Err())
}

// readAuth reads the fields of versions 6 to 9 after the monitors, and the fields of keys of
// version 10.
func (m *MonMap) readAuth(r *wire.Reader) {
	texts := func() {
		for range r.Count(4) {
			r.Str()
		}
	}
	texts() // ranks
	r.U8()  // release
	r.Skip(4 * r.Count(4))
	r.U8() // kind of elections
	texts()
	r.U8() // stretch mode
	r.Str()
	texts()
	m.AuthEpoch, m.Ciphers.Service = r.U32(), cephx.Kind(r.U32())
	m.Ciphers.Allowed = wire.ListOf(r, 4, func(r *wire.Reader) cephx.Kind { return cephx.Kind(r.U32()) })
	m.Ciphers.Preferred = cephx.Kind(r.U32())
}

// AppendTo appends the encoding of decodeMonMap.
func (m *MonMap) AppendTo(dst []byte) []byte {
	version := uint8(9)
	if m.Ciphers.Service != 0 {
		version = 10
	}
	dst, outer := wire.BeginEnvelope(dst, version, 6)
	dst = append(dst, m.FSID[:]...)
	dst = le.AppendUint32(dst, m.Epoch)
	dst = wire.AppendUtime(dst, m.Changed)
	dst = wire.AppendUtime(dst, m.Changed) // created
	for range 2 {
		var mark int
		dst, mark = wire.BeginEnvelope(dst, 1, 1)
		dst = le.AppendUint64(dst, 0) // features that the monitors agree on
		dst = wire.EndEnvelope(dst, mark)
	}
	dst = le.AppendUint32(dst, uint32(len(m.Mons)))
	for _, e := range m.Mons {
		var mark int
		dst = wire.AppendString(dst, e.Name)
		dst, mark = wire.BeginEnvelope(dst, 5, 1)
		dst = wire.AppendString(dst, e.Name)
		dst = e.Addrs.AppendTo(dst)
		dst = le.AppendUint64(dst, 0) // priority, weight, and place in the crush hierarchy
		dst = wire.EndEnvelope(dst, mark)
	}
	dst = le.AppendUint32(dst, uint32(len(m.Mons)))
	for _, e := range m.Mons {
		dst = wire.AppendString(dst, e.Name) // ranks
	}
	dst = append(dst, release)
	dst = le.AppendUint32(dst, 0) // removed ranks
	dst = append(dst, 1)          // classic elections
	dst = le.AppendUint32(dst, 0) // disallowed leaders
	dst = append(dst, 0)          // no stretch mode
	dst = wire.AppendString(dst, "")
	dst = le.AppendUint32(dst, 0) // monitors marked down
	if version >= 10 {
		dst = le.AppendUint32(le.AppendUint32(dst, m.AuthEpoch), uint32(m.Ciphers.Service))
		dst = le.AppendUint32(dst, uint32(len(m.Ciphers.Allowed)))
		for _, k := range m.Ciphers.Allowed {
			dst = le.AppendUint32(dst, uint32(k))
		}
		dst = le.AppendUint32(dst, uint32(m.Ciphers.Preferred))
	}
	return wire.EndEnvelope(dst, outer)
}

// release is that of the encodings here.
const release = 16

// ParseFSID reads the usual form.
func ParseFSID(s string) (FSID, error) {
	var f FSID
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || copy(f[:], b) != len(f) || len(b) != len(f) || f.String() != strings.ToLower(s) {
		return FSID{}, fmt.Errorf("%w: fsid %q", ErrConfig, s)
	}
	return f, nil
}

// OSDMaps are the maps of MOSDMap as they are stored, by epoch.
type OSDMaps struct {
	FSID           FSID
	Oldest, Newest uint32 // epochs that the sender has
	Incremental    map[uint32][]byte
	Full           map[uint32][]byte
}

// Epoch is the newest epoch in the message; 0 if there is no map in it.
func (m *OSDMaps) Epoch() (newest uint32) {
	for _, list := range []map[uint32][]byte{m.Incremental, m.Full} {
		for e := range list {
			newest = max(newest, e)
		}
	}
	return newest
}

// DecodeOSDMaps reads the front of MOSDMap. The maps alias it.
func DecodeOSDMaps(front []byte) (OSDMaps, error) {
	m := OSDMaps{Incremental: map[uint32][]byte{}, Full: map[uint32][]byte{}}
	r := wire.NewReader(front)
	r.Copy(m.FSID[:])
	for _, list := range []map[uint32][]byte{m.Incremental, m.Full} {
		for range r.Count(8) {
			epoch, blob := r.U32(), r.Blob()
			if r.Err() != nil {
				break
			}
			list[epoch] = blob
		}
	}
	m.Oldest, m.Newest = r.U32(), r.U32()
	return m, bad("MOSDMap", r.Err())
}
