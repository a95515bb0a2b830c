// Package mutant breaks the data plane on purpose, to test its tests: the
// simulator must notice each of these bugs. In a normal build every name is a
// constant false, and the broken code is not there. A build with the tag
// "mutants" has the one that the environment variable RINGMSGR_MUTANT names.
package mutant
