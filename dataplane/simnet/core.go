package simnet

import (
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Core is a core of a plane that runs on a Host. It has no thread: the goroutine that
// steps the Network also turns the cores, one at a time.
type Core struct {
	*loop.Core
	by  stepped.Stepper
	drv Driver
}

// Run configures a plane to run on the host: its cores have drivers, the clock
// of the network, the host's disk and its descriptors, and no threads. opened is called with each core before it has
// work, on the goroutine that starts it.
func (h *Host) Run(cfg *loop.Config, opened func(c *Core)) {
	var drv Driver // of the core that is started: one at a time is
	cfg.Now, cfg.Disk, cfg.CloseFD = h.net.Now, h.Disk(), h.closeFD
	cfg.Open = func(int) (uring.Driver, error) {
		drv = h.Driver()
		return drv, nil
	}
	cfg.Stepped = func(c *loop.Core, s stepped.Stepper) { opened(&Core{Core: c, by: s, drv: drv}) }
}

// Turn does one turn of the core: one task of its mailbox, due timers, pending writes,
// and one completion. It does nothing once the core has ended.
func (c *Core) Turn() error { return c.by.Turn() }

// Busy says whether a turn has something to do other than timers.
func (c *Core) Busy() bool {
	pending := c.drv.Pending() // first: what the core's end must see is behind it
	return c.by.Busy() || pending
}

// EndInTurn has the core end in a turn once Plane.Close has begun, as a core with a
// thread does: for a test that turns the cores on a goroutine of its own. Else Plane.Close
// ends the core on the goroutine of its caller. In the callback of Run only.
func (c *Core) EndInTurn() { c.by.EndInTurn() }

// Deadline is when the earliest timer of the core is due, by the clock of the
// network.
func (c *Core) Deadline() (when time.Duration, ok bool) { return c.by.Deadline() }
