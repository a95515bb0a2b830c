//go:build !mutants

package control

// Bugs for the tests of the tests; see mutant_on.go. A normal build has none.
const (
	mutantIgnoreWait  = false
	mutantSilentReset = false
)
