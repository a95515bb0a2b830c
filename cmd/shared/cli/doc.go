// Package cli has the common parts of programs: usage errors, exit statuses, flags, versions,
// and the text of sizes, rates and times. Commands, help and completion are those of
// spf13/cobra.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package cli
