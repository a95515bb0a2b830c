package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// errAddr is wrapped by the errors of addresses that no peer can have.
var errAddr = errors.New("bad peer address")

// Pin sends connections from addr, with any source port, to core. IPv4 and
// IPv4-mapped IPv6 addresses are the same; a zone is ignored. An entry for the
// address that exists is replaced. The table is bounded (Config.TableSize): an
// entry that has not been used for long can vanish, so a pin is a preference,
// not a promise.
func (s *Steering) Pin(addr netip.Addr, core int) error {
	key, err := addrKey(addr)
	if err != nil {
		return err
	}
	return s.put(s.maps.ByAddr, key, core, addr)
}

// PinPort sends connections from this address and source port to core. It goes
// before a Pin of the address. Otherwise as Pin.
func (s *Steering) PinPort(peer netip.AddrPort, core int) error {
	key, err := addrPortKey(peer)
	if err != nil {
		return err
	}
	return s.put(s.maps.ByAddrPort, key, core, peer)
}

// Unpin deletes the entry for addr. It is no error if there is none.
func (s *Steering) Unpin(addr netip.Addr) error {
	key, err := addrKey(addr)
	if err != nil {
		return err
	}
	return s.del(s.maps.ByAddr, key, addr)
}

// UnpinPort deletes the entry for this address and source port. It is no error
// if there is none.
func (s *Steering) UnpinPort(peer netip.AddrPort) error {
	key, err := addrPortKey(peer)
	if err != nil {
		return err
	}
	return s.del(s.maps.ByAddrPort, key, peer)
}

// Pinned returns the core that addr is pinned to.
func (s *Steering) Pinned(addr netip.Addr) (core int, ok bool, err error) {
	key, err := addrKey(addr)
	if err != nil {
		return 0, false, err
	}
	return s.get(s.maps.ByAddr, key, addr)
}

// PinnedPort returns the core that this address and source port are pinned to.
// It does not look at the address alone.
func (s *Steering) PinnedPort(peer netip.AddrPort) (core int, ok bool, err error) {
	key, err := addrPortKey(peer)
	if err != nil {
		return 0, false, err
	}
	return s.get(s.maps.ByAddrPort, key, peer)
}

func addrKey(addr netip.Addr) (steerAddr, error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return steerAddr{}, fmt.Errorf("%w: %v", errAddr, addr)
	}
	return steerAddr{IP: addr.As16()}, nil
}

func addrPortKey(peer netip.AddrPort) (steerAddrPort, error) {
	addr, err := addrKey(peer.Addr())
	if err == nil && peer.Port() == 0 {
		err = fmt.Errorf("%w: %v", errAddr, peer)
	}
	return steerAddrPort{Addr: addr, Port: peer.Port()}, err
}

func (s *Steering) put(m *ebpf.Map, key any, core int, peer fmt.Stringer) error {
	if err := s.checkCore(core); err != nil {
		return err
	}
	return s.use(func() error {
		if err := m.Update(key, uint32(core), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("pin %v to core %d: %w", peer, core, err)
		}
		return nil
	})
}

func (s *Steering) del(m *ebpf.Map, key any, peer fmt.Stringer) error {
	return s.use(func() error {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("unpin %v: %w", peer, err)
		}
		return nil
	})
}

func (s *Steering) get(m *ebpf.Map, key any, peer fmt.Stringer) (core int, ok bool, err error) {
	err = s.use(func() error {
		var c uint32
		switch err := m.Lookup(key, &c); {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("read pin of %v: %w", peer, err)
		}
		core, ok = int(c), true
		return nil
	})
	return core, ok, err
}

// forget deletes all entries of m that name core. Entries that are added
// meanwhile may be left.
func forget[K comparable](m *ebpf.Map, core int) error {
	var key K
	var c uint32
	var gone []K
	it := m.Iterate()
	for it.Next(&key, &c) {
		if int(c) == core {
			gone = append(gone, key)
		}
	}
	// A table that changes all the time cannot be walked to its end; the entries found so far
	// are removed.
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("forget core %d: %w", core, err)
	}
	for _, key := range gone {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget core %d: %w", core, err)
		}
	}
	return nil
}

// normalize returns addr in the form in which the table keeps it: IPv4 instead
// of IPv4-mapped IPv6, and without a zone.
func normalize(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
