package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// listenFlag collects --listen: addresses, those with a range of ports having
// port 0, and the range.
type listenFlag struct {
	addrs wire.AddrVec
	ports bpf.PortRange // the zero value: none
}

func (l *listenFlag) String() string {
	if l == nil || len(l.addrs) == 0 {
		return ""
	}
	return l.addrs.String()
}

// Set parses one address. A wildcard is refused: peers are told the address
// and check it against the one that they dialled.
func (l *listenFlag) Set(s string) error {
	s, ports, err := cutPorts(s)
	if err != nil {
		return err
	}
	a, err := wire.ParseAddr(s)
	switch {
	case err != nil:
		return err
	case a.Type != wire.AddrMsgr2:
		return fmt.Errorf("only v2 addresses are spoken")
	case !a.AddrPort.IsValid() || a.AddrPort.Addr().IsUnspecified():
		return fmt.Errorf("want the IP address that peers dial, as v2:IP:PORT")
	}
	none := bpf.PortRange{}
	switch {
	case ports == none:
	case l.ports != none && l.ports != ports:
		return fmt.Errorf("all ranges of ports must be the same, and there is %v", l.ports)
	default:
		l.ports = ports
	}
	l.addrs = append(l.addrs, a)
	return nil
}

// cutPorts takes a range of ports out of an address, leaving 0: FIRST-LAST
// between its last colon and the nonce.
func cutPorts(s string) (addr string, r bpf.PortRange, err error) {
	head, nonce, hasNonce := strings.Cut(s, "/")
	colon := strings.LastIndexByte(head, ':')
	first, last, ok := strings.Cut(head[colon+1:], "-")
	if !ok {
		return s, r, nil
	}
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || from == 0 || to < from {
		return s, r, fmt.Errorf("ports %q: want FIRST-LAST, such as 6800-7568", head[colon+1:])
	}
	addr = head[:colon+1] + "0"
	if hasNonce {
		addr += "/" + nonce
	}
	return addr, bpf.PortRange{First: uint16(from), Last: uint16(to)}, nil
}

// apply sets cfg up.
func (l *listenFlag) apply(cfg *control.Config) { cfg.BindPorts = l.ports }
