// Package clitest calls a program within its test, and checks what it says.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package clitest
