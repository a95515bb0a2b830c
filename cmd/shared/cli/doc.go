// Package cli has the common parts of programs: usage errors, exit statuses, flags, versions, the
// text of sizes, rates and times (cli.go, flags.go, program.go), and measurements (measure.go):
// durations in one kind of histogram, an HdrHistogram with two significant digits, a closed loop of
// load, and the memory and the CPU time of a process. Commands, help and completion are those of
// spf13/cobra.
//
// The programs and the benchmark of this module share it. It is no API for others.
package cli
