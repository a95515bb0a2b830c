// Package child is the life of the benchmark's helper processes: the servers under test and the
// clients that load them. The benchmark starts each, and speaks to it in JSON lines (package
// proc). bench/rivals is another program of that kind, with servers that the library does not
// depend on.
package child
