package load

import (
	"math/rand/v2"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/cmd/shared/procstat"
)

// StallAfter is how long a client waits for any reply before it fails with ErrStalled.
const StallAfter = stallAfter

// SampleMask chooses the replies whose payload is compared byte by byte: those whose
// transaction id has none of its bits.
const SampleMask = sampleMask

// Payload returns the payload of every request of that size. It must not be changed.
func Payload(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{'b', 'e', 'n', 'c', 'h'}).Read(p) // never fails
	return p
}

// Traffic is what a Meter measures: requests that are sent and answered by a client of
// another kind than Load.
type Traffic interface {
	// Fill issues the first requests.
	Fill() error
	// Turn waits, for a moment at most.
	Turn() error
	// Warm says whether every open request was answered once in this slice.
	Warm() bool
	// Drain issues no more requests and waits for the replies that are due.
	Drain() error
}

// Meter keeps the accounts of such a client, by the same rules as those of a Load. It
// belongs to one goroutine, or to whoever holds a lock.
type Meter struct{ meter meter }

// NewMeter makes a meter for the load on a server process.
func NewMeter(pid int) *Meter { return &Meter{newMeter(pid)} }

// newMeter reads the clocks of this process and of a server.
func newMeter(pid int) meter {
	base := time.Now()
	return meter{
		now:     func() time.Duration { return time.Since(base) },
		server:  func() (time.Duration, error) { return procstat.ReadCPU(pid) },
		client:  func() (time.Duration, error) { return procstat.ReadCPU(0) },
		latency: latency.New(),
	}
}

// Now is a clock that only runs forward.
func (m *Meter) Now() time.Duration { return m.meter.now() }

// Received counts bytes that the server has sent.
func (m *Meter) Received(n int) { m.meter.received(n) }

// Answered counts a reply that came so long after its request was issued.
func (m *Meter) Answered(took time.Duration) { m.meter.answered(took) }

// Run measures one slice. The window has enough replies, if it can without becoming
// longer than its maximum. PerReply is left to the caller.
func (m *Meter) Run(s Slice, t Traffic, enough uint64) (Result, error) {
	return m.meter.run(s, external{t}, enough)
}

// external is the traffic of another package.
type external struct{ t Traffic }

func (e external) fill() error  { return e.t.Fill() }
func (e external) turn() error  { return e.t.Turn() }
func (e external) warm() bool   { return e.t.Warm() }
func (e external) drain() error { return e.t.Drain() }
