// Package clitest is for tests of programs. It calls a program within its test and checks its
// output (Check), or starts the test's own binary as another process: as the program under
// test (Program, Start), or as one that only waits (Main, Sleeper).
//
// The programs and the benchmark of this module share it. It is no API for others.
package clitest
