package bpf

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"

	"github.com/cilium/ebpf"
)

// compile.sh makes the objects. They are committed, so that only a change of the C source
// needs the compiler: clang 14 as Debian 12 ships it. Other versions produce other bytes, and
// the test that compares them would fail. The hash tells a machine without that compiler that
// the objects belong to the source.

//go:generate sh compile.sh .
//go:generate sh -c "sha256sum kernel.h steer.c > testdata/source.sha256"

var (
	//go:embed steer_bpfel.o
	littleEndian []byte
	//go:embed steer_bpfeb.o
	bigEndian []byte
)

// loadSteer parses the object for the byte order of this machine.
func loadSteer() (*ebpf.CollectionSpec, error) {
	object := bigEndian
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		object = littleEndian
	}
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
}

// The structures of steer.c. A test compares them with the types in the objects.
type (
	steerAddr struct {
		IP [16]uint8
	}
	steerAddrPort struct {
		Addr steerAddr
		Port uint16
		Zero uint16
	}
	steerCounts struct {
		Selected [numRules]uint64
		Missed   [numRules]uint64
		Migrated uint64
	}
	steerPolicy struct {
		Word uint64
		Home uint64
	}
)

// Names of maps and programs in steer.c.
const (
	steerMapByAddr        = "by_addr"
	steerMapByAddrPort    = "by_addr_port"
	steerMapCounters      = "counters"
	steerMapListeners     = "listeners"
	steerMapPolicies      = "policies"
	steerProgSteerMigrate = "steer_migrate"
	steerProgSteerPlain   = "steer_plain"
)

// steerMaps are the maps of a loaded program.
type steerMaps struct{ ByAddr, ByAddrPort, Counters, Listeners, Policies *ebpf.Map }

// Close closes the descriptors of the maps that are there.
func (m *steerMaps) Close() error {
	return errors.Join(m.ByAddr.Close(), m.ByAddrPort.Close(), m.Counters.Close(), m.Listeners.Close(), m.Policies.Close())
}
