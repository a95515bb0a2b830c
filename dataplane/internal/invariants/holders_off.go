//go:build !invariants

package invariants

// Holding says that this build knows who holds memory that it has lent. The race detector
// does not switch it on: its lock would hide races.
const Holding = false

// Holders is empty: this build does not know.
type Holders struct{}

// Hold does nothing in this build, like Drop.
func (*Holders) Hold(any, int) {}

// Drop does nothing.
func (*Holders) Drop(any) {}

// Report is empty.
func (*Holders) Report() string { return "" }
