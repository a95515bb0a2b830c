// Package osdmap knows where the objects of a cluster are: it reads the map that monitors
// publish and maps a name to a placement group, and a group to its OSDs, as all daemons
// and clients do. Nothing here does I/O.
//
// [Decode] reads a whole map, [DecodeIncremental] the change to the next epoch, which
// [Incremental.Apply] applies. A [Map] does not change; one that follows shares the parts with it
// that are the same, results of CRUSH among them ([Map.Place]).
//
// A map is checked by its crc, and its size bounds the memory that it takes. Parts that newer releases have
// added are skipped by their lengths. Errors wrap wire.ErrMalformed.
//
//	map.go      Map, and its whole encoding
//	apply.go    Incremental
//	pool.go     Pool
//	object.go   from a name to a placement group
//	place.go    from a placement group to OSDs
//	table.go    results of CRUSH that are kept
package osdmap
