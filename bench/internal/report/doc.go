// Package report holds the results of the benchmark: every single measurement,
// the medians and ratios computed from them, and their forms as a table for
// people and as JSON for programs. It measures nothing.
//
// Ratios are paired: each compares two servers in the same round, so that disturbances of the
// whole machine cancel out. A ratio is the median of the rounds; the report adds the smallest
// and the largest.
//
// Noise is the typical spread: half of the rounds of a typical cell differ from their median by
// more. The summary accepts a difference if it is larger than the noise and all rounds agree on
// its sign.
package report
