package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The ports of a monitor in msgr2 and in msgr1.
const (
	defaultPort  = 3300
	defaultPort1 = 6789
)

// How complete addresses of msgr2 and of msgr1 look.
const (
	form2 = "v2:HOST:PORT/NONCE, such as v2:10.0.0.1:3300/0 or localhost"
	form1 = "v1:HOST:PORT/NONCE, such as v1:10.0.0.1:6789/0 or localhost"
)

// Lookup finds the IP addresses of a host name.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// system looks names up as the system does.
func system(ctx context.Context, host string) ([]netip.Addr, error) {
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok {
		err = errors.New(unknown.Err) // without the server that was asked
	}
	return all, err
}

// AddressReader reads the addresses of messengers as people write them: with a host name, and
// without protocol, port and nonce.
type AddressReader struct {
	Proto   string // v1 or v2; empty: that of each address, else v2
	Lookup  Lookup // nil: as the system does
	AnyPort bool   // port 0 is allowed: to listen on any free one
}

// Parse reads an address. Without a port it has that of a monitor, without a nonce 0. Of a list in
// brackets, as Ceph prints it, it takes the first address of the protocol, which is v1 where it has no others. Errors are usage errors,
// unless a host name is not known.
func (r AddressReader) Parse(ctx context.Context, text string) (wire.Addr, error) {
	proto, other, typ, standard, form := "v2", "v1", wire.AddrMsgr2, uint16(defaultPort), form2
	if r.Proto == "v1" || r.Proto == "" && (strings.HasPrefix(text, "v1:") || strings.HasPrefix(text, "[v1:") && !strings.Contains(text, "v2:")) {
		proto, other, typ, standard, form = "v1", "v2", wire.AddrLegacy, defaultPort1, form1
	}
	fail := func(why string) (wire.Addr, error) {
		return wire.Addr{}, cli.Usagef("wrong address: %q: %s; want %s", text, why, form)
	}
	if list, err := wire.ParseAddrVec(text); err == nil && strings.HasPrefix(text, "[v") {
		for _, a := range list {
			if a.Type == typ {
				return r.Parse(ctx, a.String())
			}
		}
		return fail("only " + proto + " addresses are spoken, and it has none")
	}
	rest := text
	if kind, tail, ok := strings.Cut(text, ":"); ok {
		switch kind {
		case proto:
			rest = tail
		case other, "any", "none":
			return fail("only " + proto + " addresses are spoken")
		}
		if kind != proto && unknown.MatchString(text) {
			return fail("there is no protocol " + kind)
		}
	}
	rest, nonceText, hasNonce := strings.Cut(rest, "/")
	nonce := uint64(0)
	if hasNonce {
		var err error
		if nonce, err = strconv.ParseUint(nonceText, 10, 32); err != nil {
			return fail("the nonce is no number of 32 bits")
		}
	}
	host, port, why := split(rest, standard)
	if why == "" && port == 0 && !r.AnyPort {
		why = "the port is 0"
	}
	if why != "" {
		return fail(why)
	}
	ip, err := r.resolve(ctx, host)
	switch {
	case errors.Is(err, errNoHost):
		return fail(fmt.Sprintf("%q is neither an IP address nor a host name", host))
	case err != nil:
		return wire.Addr{}, fmt.Errorf("%q: %w", text, err)
	case ip.IsUnspecified():
		return fail("the IP address is a wildcard, not one that peers dial")
	}
	// The library's own reader knows the valid IPv6 zones.
	a, err := wire.ParseAddr(proto + ":" + netip.AddrPortFrom(ip, port).String())
	if err != nil {
		return fail("the IPv6 zone is no positive number")
	}
	a.Nonce = uint32(nonce)
	return a, nil
}

// split cuts the port off; without a port it returns standard. why is the error, empty for
// none.
func split(s string, standard uint16) (host string, port uint16, why string) {
	inner := s
	if strings.HasSuffix(s, "]") {
		inner = strings.Trim(s, "[]")
	}
	if _, err := netip.ParseAddr(inner); err == nil || s != "" && !strings.Contains(s, ":") {
		return inner, standard, ""
	}
	host, text, err := net.SplitHostPort(cmp.Or(s, ":"))
	switch {
	case err != nil:
		return "", 0, "an IPv6 address with a port stands in brackets"
	case host == "":
		return "", 0, "the host is missing"
	case text == "":
		return "", 0, "the port is missing after the colon"
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Sprintf("the port %q is not in 1..65535", text)
	}
	return host, uint16(n), ""
}

// unknown matches an address whose protocol does not exist, but no host of that name.
var unknown = regexp.MustCompile(`^v[0-9]+:.*[A-Za-z.:]`)

// name is a host name; one of digits and dots only is a mistyped IP address.
var (
	name   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)
	digits = regexp.MustCompile(`^[0-9.]+$`)
)

// errNoHost says that a text is neither an IP address nor a host name.
var errNoHost = errors.New("no host")

// resolve finds the IP address of a host, IPv4 first, as most monitors have it.
func (r AddressReader) resolve(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, nil
	}
	switch {
	case host == "localhost":
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	case !name.MatchString(host) || digits.MatchString(host):
		return netip.Addr{}, errNoHost
	}
	lookup := r.Lookup
	if lookup == nil {
		lookup = system
	}
	all, err := lookup(ctx, host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up host %s: %w", host, err)
	}
	var found netip.Addr
	for _, ip := range all {
		if ip = ip.Unmap(); !found.IsValid() || ip.Is4() && !found.Is4() {
			found = ip
		}
	}
	if !found.IsValid() {
		return found, fmt.Errorf("look up host %s: it has no IP address", host)
	}
	return found, nil
}
