// Package compress has the algorithms of on-wire compression (Ceph's compression_onwire.cc) as
// Ceph's daemons frame their output: snappy, zlib, zstd and lz4. It is used
// through the Compression of a messenger's configuration, which decides for what
// peers and sizes.
//
// A compressed segment is, by algorithm:
//
//	snappy  one block, which begins with the length of the original
//	zlib    one byte, 0 or 1, that readers ignore, then raw deflate
//	        (no zlib header) with a window of 32 KiB
//	zstd    u32 length of the original, then one frame
//	lz4     u32 number of blocks, for each u32 length of the original and u32
//	        length of the block, then the blocks; a block may refer to what
//	        the blocks before it became
//
// Release 16 has no compression on the wire; later ones have it between OSDs.
// The tests in control/interop exchange objects and messages of many sizes and
// kinds with OSDs and clients of 18.2 and 20.2, by each method: each side reads
// the form of the other.
//
// Decompression takes no memory for more than it is allowed to make, and little
// for input that cannot be as long as it claims.
package compress
