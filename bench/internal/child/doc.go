// Package child is the life of the benchmark's helper processes: the servers under
// test and the clients that load them, each started by the benchmark and spoken to
// in JSON lines (package proc). What a helper is made of does not matter: bench/rivals
// is another program, with servers that the library does not depend on.
package child
