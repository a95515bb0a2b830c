// Package leaktest finds what a test leaves behind: goroutines, descriptors and
// memory that uring has mapped.
package leaktest
