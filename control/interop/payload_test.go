package interop_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Types of the messages that the tests exchange.
const (
	msgPing          = 2
	msgOSDOp         = 42
	msgOSDOpReply    = 43
	msgMonCommand    = 50
	msgMonCommandAck = 51
	msgCommand       = 97
	msgCommandReply  = 98
)

// monHead begins messages to monitors: version 0, mon -1, its tid 0.
const monHead = "\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"

// command makes a command for a mon or an OSD: the cluster, and one JSON object.
func command(typ uint16, fsid string, args map[string]string, data []byte, tid uint64) (*control.Message, error) {
	id, err := mon.ParseFSID(fsid)
	text, failed := json.Marshal(args)
	var front []byte
	if typ == msgMonCommand {
		front = append(front, monHead...)
	}
	front = binary.LittleEndian.AppendUint32(append(front, id[:]...), 1)
	m := control.NewMessage(typ, wire.AppendBlob(front, text), data)
	m.TID, m.Version, m.CompatVersion = tid, 1, 1
	return m, errors.Join(err, failed)
}

// monCommandResult is the status in the answer.
func monCommandResult(front []byte) error {
	r := wire.NewReader(front[min(len(monHead), len(front)):])
	status, text := r.S32(), r.Str()
	if r.Err() != nil || status != 0 {
		return fmt.Errorf("status %d %q, %w", status, text, r.Err())
	}
	return nil
}
