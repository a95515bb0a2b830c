// Package wire1 encodes and decodes the handshake of msgr1, the older protocol: its
// banner, the exchange of addresses, and the connect messages and their replies
// (Ceph's msgr.h). It is to msgr1 what package wire2 is to msgr2, and uses
// its addresses, entity types and features. What follows the handshake is in package
// frame1.
//
// It knows bytes and nothing else. Everything has a fixed size but the authorizers,
// which follow [Connect] and [Reply] on the wire; their lengths are bounded when
// these are decoded. Errors wrap [wire.ErrMalformed] or [wire.ErrBadBanner].
package wire1
