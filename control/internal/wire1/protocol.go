package wire1

import "github.com/ringmsgr/ringmsgr/control/wire"

// Protocol is the protocol version that a connector and an acceptor of these types
// must agree on (Ceph's msgr.h): among daemons of one type that of their own
// protocol, else that of the acceptor's type. Unequal numbers end in BADPROTOVER.
func Protocol(connector, acceptor wire.EntityType) uint32 {
	if connector == acceptor {
		switch acceptor {
		case wire.Mon:
			return 13
		case wire.OSD:
			return 10
		case wire.MDS:
			return 36
		}
		return 0
	}
	switch acceptor {
	case wire.Mon:
		return 15
	case wire.OSD:
		return 24
	case wire.MDS:
		return 32
	}
	return 0
}
