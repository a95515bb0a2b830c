// Package latency counts durations for the benchmark and the programs, in one
// kind of histogram: an HdrHistogram with two significant digits.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package latency
