package dissect_test

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/capture"
	"github.com/ringmsgr/ringmsgr/cmd/internal/dissect"
	"github.com/ringmsgr/ringmsgr/cmd/internal/judge"
	"github.com/ringmsgr/ringmsgr/control/keylog"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

const recordings = "../../ringmsgr/testdata/capture/"

func read(t testing.TB, file string) []byte {
	t.Helper()
	p, err := os.ReadFile(recordings + file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// decode makes the records of a recording, as far as it can be read.
func decode(p []byte, keys *keylog.Keys) (all []trace.Record) {
	packets, err := capture.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil
	}
	j := judge.New()
	var last uint64
	number := func() uint64 { last++; return last }
	opt := dissect.Options{Keys: keys, Cut: 16, Emit: func(r trace.Record) { all = append(append(all, r), j.Look(&r)...) }}
	streams := capture.NewAssembler(func(at time.Time, c capture.Conn) capture.Handler { return dissect.NewConn(at, c, number, opt) })
	for {
		s, err := packets.Next()
		if err != nil {
			break
		}
		streams.Add(s)
	}
	streams.Close()
	return all
}

// Whatever a recording holds, it is decoded to its end, with memory in proportion to it,
// and what comes out is what a trace can hold.
func FuzzRecording(f *testing.F) {
	for _, file := range []string{"msgr2.pcap", "msgr1.pcap", "secure.pcap"} {
		f.Add(read(f, file))
	}
	keys, err := keylog.Read(bytes.NewReader(read(f, "secure.keys")))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all := decode(p, keys)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20+2000*uint64(len(p)) {
			t.Errorf("%d bytes of memory for a recording of %d", took, len(p))
		}
		for _, r := range all {
			line, err := json.Marshal(&r)
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			var back trace.Record
			if err := json.Unmarshal(line, &back); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	})
}
