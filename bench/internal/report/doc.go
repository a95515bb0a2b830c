// Package report holds the results of the benchmark: every single measurement,
// the medians and ratios computed from them, and their forms as a table for
// people and as JSON for programs. It measures nothing.
//
// Ratios are paired: each compares two servers in the same round, so that disturbances of the
// whole machine cancel out. A ratio is the median of the rounds; the report adds the smallest
// and the largest.
//
// The summary accepts a difference if all rounds agree on its sign, and it is more than a machine differs from itself.
package report
