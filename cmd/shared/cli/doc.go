// Package cli is what the programs have in common as commands: how they are called wrongly,
// how their flags are read, listed and completed, what they were built from, and how they
// write sizes, rates and times for people. Commands, help and completion are those of
// spf13/cobra; exit statuses, and the words of errors, are here.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package cli
