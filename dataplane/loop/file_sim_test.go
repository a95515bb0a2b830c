package loop_test

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// simulated is a server with a disk whose power may go at any moment.
type simulated struct {
	t    *testing.T
	net  *simnet.Network
	host *simnet.Host
	p    *loop.Plane
	core *simnet.Core
	f    *loop.File
}

func (s *simulated) start() {
	s.t.Helper()
	cfg := loop.Config{Cores: 1}
	s.host.Run(&cfg, func(c *simnet.Core) { s.core = c })
	var err error
	s.p, err = loop.New(cfg)
	drivertest.Must(s.t, err)
	s.core.OpenFile("/data/log", loop.FileOptions{Write: true, Create: true},
		func(_ *loop.Core, f *loop.File, err error) {
			s.f = f
			drivertest.Must(s.t, err)
		})
	s.run(func() bool { return s.f != nil })
}

// run lets the machine go on until done says so.
func (s *simulated) run(done func() bool) {
	s.t.Helper()
	for range 100_000 {
		for s.core.Busy() {
			drivertest.Must(s.t, s.core.Turn())
		}
		if done() {
			return
		}
		at, ok := s.net.Next()
		if when, due := s.core.Deadline(); due && (!ok || when < at) {
			at, ok = when, true
		}
		if !ok {
			s.t.Fatal("nothing happens any more")
		}
		s.net.Advance(at)
		s.net.Step()
		drivertest.Must(s.t, s.core.Turn())
	}
	s.t.Fatal("it never ends")
}

// What was acknowledged is there after any loss of power.
func TestWhatWasCommittedSurvivesAPowerCut(t *testing.T) {
	const record, slots = 512, 40
	lost := 0
	for seed := range uint64(60) {
		s := &simulated{t: t, net: simnet.New(seed, simnet.Options{})}
		s.host = s.net.Host(netip.MustParseAddr("10.0.0.1"))
		s.host.Disk().Configure(simnet.DiskOptions{Latency: time.Microsecond, Jitter: time.Millisecond})
		s.start()
		_ = s.host.Disk().SyncDir("/data")
		asked, acknowledged := map[int]uint64{}, map[int]uint64{}
		var version uint64
		var put func(slot int)
		put = func(slot int) {
			version++
			p := make([]byte, record)
			for at := 0; at < record; at += 8 {
				binary.LittleEndian.PutUint64(p[at:], version)
			}
			mine := version
			how := loop.Committed
			if slot%3 == 0 {
				how = loop.Through
			}
			asked[slot] = mine
			op := &loop.FileOp{Done: func(_ *loop.Core, op *loop.FileOp) {
				if op.Err == nil {
					acknowledged[slot] = mine
					put(slot)
				}
			}}
			drivertest.Must(t, s.f.WriteAt(op, p, int64(slot)*record, how))
		}
		for slot := range slots {
			put(slot)
		}
		cut := s.net.Now() + time.Duration(s.net.Rand().IntN(int(20*time.Millisecond)))
		s.net.After(cut-s.net.Now(), func() {})
		s.run(func() bool { return s.net.Now() >= cut })
		was, last := maps.Clone(acknowledged), maps.Clone(asked)
		s.host.Die(true)
		_ = s.p.Close()
		s.host.Revive()
		s.f = nil
		s.start()
		got := make([]byte, slots*record)
		var op loop.FileOp
		ended := false
		op.Done = func(*loop.Core, *loop.FileOp) { ended = true }
		drivertest.Must(t, s.f.ReadAt(&op, got, 0))
		s.run(func() bool { return ended })
		for slot := range slots {
			v := binary.LittleEndian.Uint64(got[slot*record:])
			if v < was[slot] || v > last[slot] {
				t.Fatalf("seed %d: slot %d has version %d, acknowledged was %d, asked for %d", seed, slot, v, was[slot], last[slot])
			}
			if v < last[slot] {
				lost++
			}
		}
		_ = s.p.Close()
	}
	if lost == 0 {
		t.Error("nothing was ever lost: the power cut is none")
	}
}
