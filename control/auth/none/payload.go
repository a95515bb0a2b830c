package none

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// payload is the connector's payload; both forms have the same fields.
type payload struct {
	form     byte
	name     wire.EntityName
	globalID uint64
}

func (p payload) appendTo(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(p.name.AppendTo(append(dst, p.form)), p.globalID)
}

// decodePayload ignores bytes after the known fields.
func decodePayload(b []byte) (payload, error) {
	r := wire.NewReader(b)
	p := payload{form: r.U8(), name: r.EntityName(), globalID: r.U64()}
	if err := r.Err(); err != nil {
		return payload{}, fmt.Errorf("auth none: %w", err)
	}
	return p, nil
}
