package msgrtest_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

type dataPayload interface{ AppendTo([]byte) []byte }

// decodeData reads the payload of a frame of the data phase.
func decodeData(name string, p []byte) (dataPayload, error) {
	if name == "ACK" {
		return msgrtest.DecodeAck(p)
	}
	return msgrtest.DecodeKeepalive(p)
}

// recordedData are payloads that real daemons sent.
var recordedData = []struct{ frame, payload string }{
	{"KEEPALIVE2", "3321016b179ada36"},
	{"ACK", "0100000000000000"},
	{"KEEPALIVE2_ACK", "3321016b179ada36"},
	{"ACK", "0400000000000000"},
	{"KEEPALIVE2", "d20400002e160000"},
	{"KEEPALIVE2_ACK", "d20400002e160000"},
	{"KEEPALIVE2", "00f1536515cd5b07"},
	{"KEEPALIVE2_ACK", "00f1536515cd5b07"},
}

// Matrix: IN-06
func TestRecordedDataPayloadsReencodeIdentically(t *testing.T) {
	for _, r := range recordedData {
		p, err := hex.DecodeString(r.payload)
		must(t, err)
		for n := range p {
			if _, err := decodeData(r.frame, p[:n]); !errors.Is(err, wire.ErrTruncated) || !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s cut to %d of %d bytes: %v", r.frame, n, len(p), err)
			}
		}
		v, err := decodeData(r.frame, append(bytes.Clone(p), "surplus"...))
		if err != nil {
			t.Errorf("%s %s: %v", r.frame, r.payload, err)
			continue
		}
		if got := v.AppendTo([]byte("head")); !bytes.Equal(got, append([]byte("head"), p...)) {
			t.Errorf("%s: got %x behind head, want %s", r.frame, got, r.payload)
		}
	}
}

func TestRecordedDataPayloadsMeanWhatTheySay(t *testing.T) {
	k, err := msgrtest.DecodeKeepalive([]byte{0x00, 0xf1, 0x53, 0x65, 0x15, 0xcd, 0x5b, 0x07})
	must(t, err)
	if got := k.Stamp.Time(); !got.Equal(time.Unix(1700000000, 123456789)) {
		t.Errorf("the stamp is %v", got)
	}
	a, err := msgrtest.DecodeAck([]byte{4, 0, 0, 0, 0, 0, 0, 0})
	if err != nil || a.Seq != 4 {
		t.Errorf("the ack is for %d, %v", a.Seq, err)
	}
}
