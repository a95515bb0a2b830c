// Package proctest gives a test another process, without a program that the machine would
// have to have: the test's own binary. That is the program under test (Program, Start), or
// one that only waits (Main, Sleeper).
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package proctest
