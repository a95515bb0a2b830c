// Package drivertest holds drivers against the contract of uring.FileDriver, with the
// uring.Disk that opens their files. The tests of each driver run it, wherever that is:
// on a kernel, in memory, or simulated. CheckLeaks finds goroutines, descriptors and mapped
// memory that a function leaves behind, Leaks what a part of a test does, LeavesNothing the first two in
// any test.
package drivertest
