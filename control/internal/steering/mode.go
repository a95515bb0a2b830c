package steering

import (
	"fmt"
	"strings"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// Mode names the rules by which the kernel chooses the core of a new connection: one of
// the names, or several joined by commas ("table,cpu"). The order of the rules is table,
// hint, CPU; connections that none of them decides go by the kernel's hash. Package bpf
// has the details.
type Mode string

// The ways to steer.
const (
	// Auto is the table and the hint, and with pinned cores the CPU. The
	// CPU is not used otherwise: where one queue of the network card brings all
	// connections, it would give them all to one core.
	Auto Mode = "auto"
	// None loads no program, gives no hints and follows none.
	None Mode = "none"
	// CPU takes the core of the CPU that took the SYN.
	CPU Mode = "cpu"
	// Hint takes the core that the peer's source port names, which
	// reconnecting peers of this package choose by our server_cookie.
	Hint Mode = "hint"
	// Table takes the core that was pinned for the peer's address.
	Table Mode = "table"
)

// Rules are the rules of the mode; those of Auto depend on whether the cores are pinned.
func (s Mode) Rules(pinned bool) (bpf.Rules, error) {
	switch s {
	case None:
		return 0, nil
	case "", Auto:
		if pinned {
			return bpf.UseTable | bpf.UseHint | bpf.UseCPU, nil
		}
		return bpf.UseTable | bpf.UseHint, nil
	}
	var rules bpf.Rules
	for name := range strings.SplitSeq(string(s), ",") {
		switch Mode(name) {
		case CPU:
			rules |= bpf.UseCPU
		case Hint:
			rules |= bpf.UseHint
		case Table:
			rules |= bpf.UseTable
		default:
			return 0, fmt.Errorf("steering %q, want %s, %s, or a list of %s, %s and %s",
				s, Auto, None, CPU, Hint, Table)
		}
	}
	return rules, nil
}
