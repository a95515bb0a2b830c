// Package drivertest holds drivers against the contract of uring.FileDriver, with the
// uring.Disk that opens their files. The tests of each driver run it, wherever that is:
// on a kernel, in memory, or simulated. CheckLeaks finds goroutines, descriptors and mapped
// memory that a function leaves behind, LeavesNothing the first two in any test. FullListener and
// LowerLimit bring about what a machine seldom does.
package drivertest
