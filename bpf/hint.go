package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	ephemeralFile = "/proc/sys/net/ipv4/ip_local_port_range"
	reservedFile  = "/proc/sys/net/ipv4/ip_local_reserved_ports"
)

// firstUserPort is the first port that needs no privilege to bind.
const firstUserPort = 1024

// hintPortsPerCore is the number of ports per core of a comfortable range: a peer may hold that
// many connections to one core of one server.
const hintPortsPerCore = 64

// errNoHintRange says that no range of ports is left for hints.
var errNoHintRange = errors.New("no port range left for hints")

// PortRange is a range of ports, both ends included. The zero value holds
// port 0 only, which no connection has.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Contains reports whether port lies within r.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// overlaps reports whether r and o share a port.
func (r PortRange) overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// Len returns the number of ports in r, 0 if First is above Last.
func (r PortRange) Len() int { return max(0, int(r.Last)-int(r.First)+1) }

// String returns "first-last".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// ephemeralPorts returns the range from which this machine's kernel picks the
// source port of a connection that did not bind one, in the network namespace
// of the calling thread.
func ephemeralPorts() (PortRange, error) {
	text, err := os.ReadFile(ephemeralFile)
	if err != nil {
		return PortRange{}, fmt.Errorf("read ephemeral ports: %w", err)
	}
	f := strings.Fields(string(text))
	if len(f) != 2 {
		return PortRange{}, fmt.Errorf("read ephemeral ports: %q is not a range", text)
	}
	r, err := parsePorts(f[0] + "-" + f[1])
	if err != nil {
		return PortRange{}, fmt.Errorf("read ephemeral ports: %w", err)
	}
	return r, nil
}

// reservedPorts returns the ports that the administrator has set aside for
// particular services (net.ipv4.ip_local_reserved_ports).
func reservedPorts() ([]PortRange, error) {
	text, err := os.ReadFile(reservedFile)
	if err != nil {
		return nil, fmt.Errorf("read reserved ports: %w", err)
	}
	var ranges []PortRange
	for item := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		if item == "" {
			continue
		}
		r, err := parsePorts(item)
		if err != nil {
			return nil, fmt.Errorf("read reserved ports: %w", err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// parsePorts reads "port" or "first-last".
func parsePorts(s string) (PortRange, error) {
	a, b, pair := strings.Cut(s, "-")
	if !pair {
		b = a
	}
	first, err := strconv.ParseUint(a, 10, 16)
	if err != nil {
		return PortRange{}, err
	}
	last, err := strconv.ParseUint(b, 10, 16)
	if err != nil {
		return PortRange{}, err
	}
	if first > last {
		return PortRange{}, fmt.Errorf("port range %q is empty", s)
	}
	return PortRange{uint16(first), uint16(last)}, nil
}

// LocalHintRange proposes a range of source ports for hints to a server with the given number
// of cores. It lies outside the ephemeral range and the reserved ports of this machine, on which
// all peers have to agree, and contains none of avoid: name the ports that listeners bind there.
func LocalHintRange(cores int, avoid ...PortRange) (PortRange, error) {
	ephemeral, err := ephemeralPorts()
	if err != nil {
		return PortRange{}, err
	}
	reserved, err := reservedPorts()
	if err != nil {
		return PortRange{}, err
	}
	return proposeHintRange(cores, ephemeral, slices.Concat(reserved, avoid)...)
}

// proposeHintRange is LocalHintRange for another machine. The largest free
// stretch above ephemeral is taken if it is comfortable, because few services
// have their ports up there, else the largest anywhere. The length is a
// multiple of cores, so that every core has the same number of ports. It fails
// if no stretch is long enough.
func proposeHintRange(cores int, ephemeral PortRange, avoid ...PortRange) (PortRange, error) {
	if cores < 1 || cores > MaxCores {
		return PortRange{}, fmt.Errorf("%w: %d cores", errNoHintRange, cores)
	}
	var best PortRange
	high := false // best lies above ephemeral and is comfortable
	for _, r := range freePorts(append(slices.Clone(avoid), ephemeral)) {
		h := r.First > ephemeral.Last && r.Len() >= cores*hintPortsPerCore
		if h && !high || h == high && r.Len() > best.Len() {
			best, high = r, h
		}
	}
	if best.First == 0 || best.Len() < cores {
		return PortRange{}, fmt.Errorf("%w outside %v for %d cores", errNoHintRange, ephemeral, cores)
	}
	best.Last -= uint16(best.Len() % cores)
	return best, nil
}

// freePorts returns the stretches of unprivileged ports outside taken.
func freePorts(taken []PortRange) []PortRange {
	slices.SortFunc(taken, func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
	var free []PortRange
	next := firstUserPort // first port not known to be taken
	for _, t := range taken {
		if int(t.First) > next {
			free = append(free, PortRange{uint16(next), t.First - 1})
		}
		next = max(next, int(t.Last)+1)
	}
	if next <= 65535 {
		free = append(free, PortRange{uint16(next), 65535})
	}
	return free
}

// HintPort returns a source port of range r that the hint rule maps to core of
// cores. Attempts 0, 1, 2, ... walk through all of these ports and start again
// after the last: when bind or connect says that a port is taken, try the
// next attempt, and start at a random attempt to spread. It returns 0 if r has no
// port for core.
func HintPort(r PortRange, core, cores, attempt int) uint16 {
	if core < 0 || cores < 1 || core >= cores || attempt < 0 {
		return 0
	}
	first := int(r.First) + (core-int(r.First)%cores+cores)%cores
	if first == 0 {
		first = cores // port 0 means any port
	}
	if first > int(r.Last) {
		return 0
	}
	count := (int(r.Last)-first)/cores + 1
	return uint16(first + attempt%count*cores)
}
