// Package durabletest holds a durable server against the worst that may happen to its disk
// and its process: kills, power cuts, writes that are torn, lost, late or refused, a full
// disk, and bits that flip. The server is a program on a messenger that keeps values by key;
// what must be there is known from its answers alone: what it has acknowledged is there, and
// what it has refused may be, from the next process on.
//
// An Audit asks for keys, at random and many at a time, and judges each answer. It asks
// whoever serves: a process under test, or the server of a World.
//
// A World is a server on a simulated disk (dataplane/simnet) and its client, joined as in
// package pair. Endure runs one for each of many seeds, with everything that there is:
//
//	var seeds = durabletest.SeedFlags("store", 40)
//
//	durabletest.Endure(t, seeds, func(seed uint64) durabletest.Server {
//		s := durabletest.Server{Open: open, Ask: ask, Missing: errMissing, Refused: errRefused}
//		s.Pair.Seed = seed
//		return s
//	}, func(w *durabletest.World) { w.Flip("/data", errDamaged) })
//
// Simulate runs what a test has thought of, such as a full disk. The order in which cores,
// network and disk do what is due comes from the seed, and with it what happens to each
// write, so that a seed takes the same course again as far as the order of goroutines lets it.
package durabletest
