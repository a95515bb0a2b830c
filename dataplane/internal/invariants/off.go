//go:build !invariants && !race

package invariants

// Enabled says that this build checks its own invariants.
const Enabled = false
