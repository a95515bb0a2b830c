// Package clitest is for tests of programs. It calls a program within its test and checks its
// output (Check), or starts the test's own binary as the program under test, in another process
// (Program, Start). A Sleeper is a process that only waits.
//
// The programs and the benchmark of this module share it. It is no API for others.
package clitest
