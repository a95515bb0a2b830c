// Package proctest gives a test another process to look at, without a program
// that the machine would have to have: the test's own binary.
package proctest
