// Package keylog is the format of the file in which the keys of connections in mode
// secure are logged, so that a recording of them can be decrypted. The file is text,
// one line for each connection:
//
//	MSGR2_SECRET ID SECRET
//
// ID are the first 16 bytes of SHA-256 over the payload of the connection's AUTH_DONE
// frame, which is encrypted and so never comes twice; SECRET are the 40 bytes of its
// connection secret that are keys: the key of both directions, the nonce of the
// acceptor's first frame, the nonce of the connector's. Both are in hex. Empty lines
// and lines that begin with # are passed over.
//
// The file is as secret as what the connections carry, and of no use for others.
package keylog
