// Package cli has the common parts of programs: usage errors, exit statuses, flags, versions,
// and the text of sizes, rates and times. Commands, help and completion are those of
// spf13/cobra.
//
// The programs and the benchmark of this module share it. It is no API for others.
package cli
