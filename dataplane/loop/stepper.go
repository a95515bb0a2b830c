package loop

import "time"

// stepper is a core without a thread, as its simulator sees it (Config.Stepped).
type stepper Core

func (s *stepper) Turn() error {
	c := (*Core)(s)
	defer c.stepped.Add(1)
	if c.closed.Load() {
		return nil
	}
	c.sleeping.Store(false)
	if c.endInTurn && c.stopping.Load() {
		c.end()
		return nil
	}
	if err := c.turn(false); err != nil {
		return err
	}
	if c.draining.Load() && c.left() {
		c.stopping.Store(true)
		c.end()
	}
	return nil
}

func (s *stepper) Busy() bool {
	c := (*Core)(s)
	defer c.stepped.Add(1)
	if c.busy() {
		return true
	}
	c.sleeping.Store(true) // who posts something from here on wakes the driver
	return c.busy() || c.endInTurn && c.stopping.Load() && !c.closed.Load()
}

func (s *stepper) EndInTurn() { s.endInTurn = true }

func (s *stepper) Deadline() (when time.Duration, ok bool) { return s.timers.next() }
