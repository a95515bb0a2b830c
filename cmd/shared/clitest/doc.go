// Package clitest is for tests of programs. It calls a program within its test and checks its
// output (Check), starts the test's own binary as the program under test (Program, Start), or
// starts a process that only waits (Sleeper).
//
// The programs and the benchmark of this module share it. It is no API for others.
package clitest
