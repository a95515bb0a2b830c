// Package perf measures: durations in one kind of histogram, an HdrHistogram with two
// significant digits, a closed loop of load, and the memory, the CPU time and the wake-ups of
// a process, this one (0) or another.
//
// The programs and the benchmark of this module share it. It is no API for others.
package perf
