package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// lookupTime bounds how long the host name of a --listen is looked up.
const lookupTime = 10 * time.Second

// listenFlag collects --listen: addresses, those with a range of ports having
// port 0, and the range.
type listenFlag struct {
	addrs wire.AddrVec
	typed []bool        // by address: it says its protocol
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
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	r, err := address.Reader{AnyPort: true}.For("", s)
	if err != nil {
		return err
	}
	a, err := r.Parse(ctx, s)
	if err != nil {
		return err
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
	l.typed = append(l.typed, strings.HasPrefix(s, "v"))
	return nil
}

// speak has the addresses that do not say their protocol have this one; empty: v2.
func (l *listenFlag) speak(proto string) {
	for i := range l.addrs {
		if proto == "v1" && !l.typed[i] {
			l.addrs[i].Type = wire.AddrLegacy
		}
	}
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
