// Package procstat asks the kernel what a process uses: memory, CPU time,
// wake-ups. The process 0 is this one.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package procstat
