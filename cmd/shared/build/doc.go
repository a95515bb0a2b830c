// Package build says what a program was built from.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package build
