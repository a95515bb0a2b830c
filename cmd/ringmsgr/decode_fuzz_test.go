package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/capture"
	"github.com/ringmsgr/ringmsgr/cmd/internal/judge"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

// records are the records of a recording, as far as it can be read.
func records(p []byte, keys *trace.Keys) (all []trace.Record) {
	packets, err := capture.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil
	}
	j := judge.New()
	var last uint64
	number := func() uint64 { last++; return last }
	opt := trace.StreamOptions{Keys: keys, Cut: 16, Emit: func(r trace.Record) { all = append(append(all, r), j.Look(&r)...) }}
	streams := capture.NewAssembler(func(at time.Time, c trace.TCP) capture.Handler { return trace.NewStreams(at, c, number, opt) })
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

// Any recording is decoded to its end, with memory in proportion to it, and its records are
// valid in a trace.
func FuzzRecording(f *testing.F) {
	for _, file := range []string{"msgr2.pcap", "msgr1.pcap", "secure.pcap"} {
		f.Add(readRecording(f, file))
	}
	keys, err := trace.ReadKeys(bytes.NewReader(readRecording(f, "secure.keys")))
	clitest.Must(f, err)
	f.Fuzz(func(t *testing.T, p []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all := records(p, keys)
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
