// Package wire2 encodes and decodes the banner of msgr2, and the payload of every control
// frame but acks and keepalives, which are package dataplane's. It is to msgr2 what package
// wire1 is to msgr1, and uses the addresses and entities of package wire, whose text says
// how its types are encoded: each has AppendTo, and a decoder that tolerates bytes
// behind the known fields. Errors wrap [wire.ErrMalformed] or [wire.ErrBadBanner].
package wire2

import (
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// wrap names the payload that was being decoded when err happened.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("decode %s: %w", what, err)
}
