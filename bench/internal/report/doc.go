// Package report holds the results of the benchmark: every single measurement,
// the medians and ratios computed from them, and their forms as a table for
// people and as JSON for programs. It measures nothing.
//
// Ratios are paired: each compares two servers in the same round, so that what
// slows the whole machine for a while cancels out. A ratio is the median of
// those of all rounds; beside it stand the smallest and the largest of them.
//
// Noise is by how much half of the rounds of a typical cell differ from their
// median. The summary takes a difference for real if it is larger than that and all rounds
// agree on its sign.
package report
