// Package crush maps numbers to devices by the rules of a CRUSH map: the same devices, bit
// for bit, that the daemons of a cluster find.
//
// A [Map] is a hierarchy of buckets (hosts, racks, ...) with devices at the bottom, and rules
// that choose from it. [Decode] reads one, [Map.Do] runs a rule. Nothing here does I/O, and a
// mapping allocates nothing. A map is data of others: its size bounds the memory that it takes,
// and a mapping ends after a bounded number of steps, whatever the map says.
//
//	decode.go   the encoding
//	hash.go     the hash of integers; ln.go: its logarithm, which straw2 draws by
//	choose.go   one item of a bucket, by the five algorithms
//	rule.go     the steps of a rule; firstn.go and indep.go: choose and chooseleaf
//	msr.go      rules that try again across steps (of release 19)
//	nearness.go  how far devices are from a location
package crush
