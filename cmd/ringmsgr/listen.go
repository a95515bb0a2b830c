package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// lookupTime bounds how long the host name of a --listen is looked up.
const lookupTime = 10 * time.Second

// listenFlag collects --listen. What it says is known once read has parsed it: addresses,
// those with a range of ports having port 0, and the range.
type listenFlag struct {
	texts []string
	addrs wire.AddrVec
	ports bpf.PortRange // the zero value: none
}

func (l *listenFlag) String() string { return "" }

// Set implements flag.Value.
func (l *listenFlag) Set(s string) error {
	l.texts = append(l.texts, s)
	return nil
}

// read parses the addresses; those that do not say their protocol have this one, empty for
// v2. A wildcard is refused: peers are told the address and check it against the one that
// they dialled.
func (l *listenFlag) read(proto string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	for _, text := range l.texts {
		text, ports, err := cutPorts(text)
		if err != nil {
			return err
		}
		own := ""
		if !strings.HasPrefix(text, "v") {
			own = proto
		}
		r, err := address.Reader{AnyPort: true}.For(own, text)
		if err != nil {
			return err
		}
		a, err := r.Parse(ctx, text)
		if err != nil {
			return err
		}
		none := bpf.PortRange{}
		if ports != none && l.ports != none && l.ports != ports {
			return fmt.Errorf("all ranges of ports must be the same, and there are %v and %v", l.ports, ports)
		}
		if ports != none {
			l.ports = ports
		}
		l.addrs = append(l.addrs, a)
	}
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
