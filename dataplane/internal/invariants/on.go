//go:build invariants || race

package invariants

// Enabled says that this build checks its own invariants: released buffers
// are overwritten and owner-only calls verify their thread.
const Enabled = true
