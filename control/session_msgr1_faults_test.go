package control_test

import "testing"

// Faults and where they strike, in msgr1: what the tests of the same behaviour do for
// msgr2, with the break points that msgr1 has. They are samples as well.

// Two faults at any two places of a lossless session lose nothing, and double nothing.
func TestMsgr1EveryOrderedPairOfFaultsConverges(t *testing.T) {
	orderedPairsConverge(t, msgr1Variants, strideOf(29, 59))
}

// The same with both sides free to resume.
func TestMsgr1PairsOfFaultsInARaceConverge(t *testing.T) {
	racingPairsConverge(t, msgr1Variants, strideOf(29, 59))
}

// Each socket call of a run fails, in a run of its own.
func TestMsgr1TheNthSocketCallFails(t *testing.T) {
	nthSocketCallFails(t, msgr1Variants, len(msgr1Variants), 11)
}

// A connection ends behind any number of bytes.
func TestMsgr1AConnectionIsCutAtEveryByte(t *testing.T) {
	cutAtEveryByte(t, msgr1Variants, 7)
}
