// Package quantity writes sizes, rates and times for people, and reads sizes,
// in the same way in the benchmark and the programs.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package quantity
