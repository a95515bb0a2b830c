// Package drivertest holds drivers against the contract of uring.FileDriver, with the
// uring.Disk that opens their files. The tests of each driver run it, wherever that is:
// on a kernel, in memory, or simulated.
package drivertest
