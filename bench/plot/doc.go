// Command plot draws the results of the benchmark as SVG: the CPU time of the server for
// each message and its system calls over the size of the payload, and how latencies are
// distributed in one load.
//
//	go run ./bench --plot DIR                       # measures, and has this program draw
//	go run ./bench --show FILE.json --plot DIR      # draws once more
//	cd bench/plot && go run . --dir DIR FILE.json   # the same
//
// Its dependencies make it a module of its own.
package main
