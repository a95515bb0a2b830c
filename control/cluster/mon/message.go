package mon

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
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

// subscription is one entry of MMonSubscribe.
type subscription struct {
	start uint64
	once  bool
}

// subscribeMessage makes MMonSubscribe.
func subscribeMessage(subs map[string]subscription) *control.Message {
	b := le.AppendUint32(nil, uint32(len(subs)))
	names := make([]string, 0, len(subs))
	for name := range subs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = wire.AppendString(b, name)
		b = le.AppendUint64(b, subs[name].start)
		b = wire.AppendBool(b, subs[name].once)
	}
	b = wire.AppendString(b, "") // host name: none of the monitor's business
	return message(typeSubscribe, 0, 3, b)
}

// decodeSubscribe reads the front of MMonSubscribe.
func decodeSubscribe(front []byte) (map[string]subscription, error) {
	r := wire.NewReader(front)
	subs := make(map[string]subscription)
	for range r.Count(13) { // a length, a number and flags
		name := r.Str()
		subs[name] = subscription{r.U64(), r.U8()&1 != 0}
		if r.Err() != nil {
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
