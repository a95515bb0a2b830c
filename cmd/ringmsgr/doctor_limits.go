package main

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// limitsReport is the JSON of doctor --limits.
type limitsReport struct {
	Limits []control.Bound `json:"limits"`
}

func (d *doctor) reportLimits(e env, cfg dataplane.Config) error {
	r := limitsReport{control.Config{Plane: cfg}.Bounds()}
	if d.json {
		return cli.WriteJSON(e.stdout, r)
	}
	r.print(e)
	return nil
}

// print writes one line for each bound.
func (r *limitsReport) print(e env) {
	const row = "%-22s %12s  %-10s  %s\n"
	fmt.Fprintf(e.stdout, row, "SETTING", "BOUND", "FOR EACH", "OF")
	for _, b := range r.Limits {
		fmt.Fprintf(e.stdout, row, b.Name, boundText(b), b.Per, b.Of)
	}
	fmt.Fprint(e.stdout, "\nThese are defaults of control.Config, whose fields set them; none means that nothing is bounded.\n")
}

// boundText is the value of a bound with its unit.
func boundText(b control.Bound) string {
	if b.Unlimited() {
		return "none"
	}
	switch b.Unit {
	case control.UnitBytes:
		return quantity.Bytes(b.Value)
	case control.UnitRate:
		return quantity.Bytes(b.Value) + "/s"
	case control.UnitPerSecond:
		return humanize.FormatInteger("# ###.", int(b.Value)) + "/s"
	case control.UnitNanoseconds:
		return time.Duration(b.Value).String()
	default:
		return humanize.FormatInteger("# ###.", int(b.Value))
	}
}
