package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// errAddr is wrapped by the errors of addresses that no peer can have.
var errAddr = errors.New("bad peer address")

// Pin sends connections from peer to core; port 0 stands for any source port, and a pin
// with a port goes before that. IPv4 and IPv4-mapped IPv6 addresses are the same; a zone is
// ignored. An entry for the peer that exists is replaced. The table is bounded
// (Config.TableSize): an entry that has not been used for long can vanish, so a pin is a
// preference, not a promise.
func (s *Steering) Pin(peer netip.AddrPort, core int) error {
	if err := s.checkCore(core); err != nil {
		return err
	}
	return s.entry(peer, func(m *ebpf.Map, key any) error { return m.Update(key, uint32(core), ebpf.UpdateAny) })
}

// Unpin deletes the entry that Pin has made for peer. It is no error if there is none.
func (s *Steering) Unpin(peer netip.AddrPort) error {
	return s.entry(peer, func(m *ebpf.Map, key any) error {
		err := m.Delete(key)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return err
	})
}

// Pinned returns the core that Pin has set for peer. With a port it does not look at the
// address alone.
func (s *Steering) Pinned(peer netip.AddrPort) (core int, ok bool, err error) {
	err = s.entry(peer, func(m *ebpf.Map, key any) error {
		var c uint32
		err := m.Lookup(key, &c)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		core, ok = int(c), err == nil
		return err
	})
	return core, ok, err
}

// entry calls f with the map and the key for peer.
func (s *Steering) entry(peer netip.AddrPort, f func(m *ebpf.Map, key any) error) error {
	addr := peer.Addr()
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return fmt.Errorf("%w: %v", errAddr, addr)
	}
	var key any = steerAddrPort{Addr: steerAddr{IP: addr.As16()}, Port: peer.Port()}
	return s.use(func() error {
		m := s.maps.ByAddrPort
		if peer.Port() == 0 {
			m, key = s.maps.ByAddr, steerAddr{IP: addr.As16()}
		}
		if err := f(m, key); err != nil {
			return fmt.Errorf("pin of %v: %w", peer, err)
		}
		return nil
	})
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
