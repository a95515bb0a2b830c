// Package clitest is for tests of programs. It calls a program within its test and checks
// what it says (Check), or gives the test another process without a program that the machine
// would have to have: the test's own binary. That is the program under test (Program, Start),
// or one that only waits (Main, Sleeper).
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package clitest
