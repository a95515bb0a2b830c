package interop_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ringmsgr/ringmsgr/control"
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

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

// fsidBytes is the wire form of a cluster's id.
func fsidBytes(fsid string) ([]byte, error) {
	return hex.DecodeString(strings.ReplaceAll(fsid, "-", ""))
}

// appendCommand appends the common part of commands to mons and OSDs: the
// cluster and one JSON object.
func appendCommand(b []byte, fsid string, command map[string]string) ([]byte, error) {
	cmd, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	id, err := fsidBytes(fsid)
	b = append(b, id...)
	b = binary.LittleEndian.AppendUint32(b, 1)
	return appendString(b, string(cmd)), err
}

// monCommand makes a command for a mon.
func monCommand(fsid, prefix string, tid uint64) (*control.Message, error) {
	return monCommandOf(fsid, plain(prefix), nil, tid)
}

// monCommandOf is monCommand with arguments, and data that goes along.
func monCommandOf(fsid string, args map[string]string, data []byte, tid uint64) (*control.Message, error) {
	head := make([]byte, 18) // version 0, mon -1, its tid 0
	binary.LittleEndian.PutUint16(head[8:], 0xffff)
	m, err := command(msgMonCommand, head, fsid, args, tid)
	m.Data = data
	return m, err
}

// osdCommand makes a command for an OSD.
func osdCommand(fsid, prefix string, tid uint64) (*control.Message, error) {
	return command(msgCommand, nil, fsid, plain(prefix), tid)
}

// plain is a command without arguments.
func plain(prefix string) map[string]string {
	return map[string]string{"prefix": prefix, "format": "json"}
}

func command(typ uint16, head []byte, fsid string, args map[string]string, tid uint64) (*control.Message, error) {
	front, err := appendCommand(head, fsid, args)
	m := control.NewMessage(typ, front, nil)
	m.TID, m.Version, m.CompatVersion = tid, 1, 1
	return m, err
}

// monCommandResult is the status in the answer.
func monCommandResult(front []byte) error {
	r := wire.NewReader(front[min(18, len(front)):])
	status, text := r.S32(), r.Str()
	if r.Err() != nil || status != 0 {
		return fmt.Errorf("status %d %q, %w", status, text, r.Err())
	}
	return nil
}
