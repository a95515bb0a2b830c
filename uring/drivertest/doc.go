// Package drivertest holds drivers against the contract of uring.FileDriver. The
// tests of each driver run it, wherever that is: on a kernel, in memory, or
// simulated.
package drivertest
