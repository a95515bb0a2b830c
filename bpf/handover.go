package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// numFiles is the number of descriptors that a hand-over takes.
const numFiles = 6

// errFiles is wrapped by the errors of descriptors that do not belong to a Steering.
var errFiles = errors.New("not the descriptors of a steering program")

// Files returns duplicates of the descriptors of program and maps, to hand to
// another process by inheritance (exec.Cmd.ExtraFiles) or over a Unix socket,
// in this order: program, listeners, table by address and port, table by
// address, policy, counters. The caller closes them. They are close-on-exec.
//
// For a hand-over, the new process opens its listeners in the same group,
// calls FromFiles, and Add for each core, which replaces the listener of the
// old process in its slot in one step. The old process then accepts the queued
// connections and closes its listeners; with migration, late connections move.
func (s *Steering) Files() ([]*os.File, error) {
	var files []*os.File
	err := s.use(func() error {
		for i, fd := range s.descriptors() {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("duplicate descriptor: %w", err)
			}
			files = append(files, os.NewFile(uintptr(dup), fileNames[i]))
		}
		return nil
	})
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	return files, nil
}

var fileNames = [numFiles]string{
	"steer", steerMapListeners, steerMapByAddrPort, steerMapByAddr, steerMapPolicies, steerMapCounters,
}

func (s *Steering) descriptors() [numFiles]int {
	m := &s.maps
	return [numFiles]int{
		s.prog.FD(), m.Listeners.FD(), m.ByAddrPort.FD(), m.ByAddr.FD(), m.Policies.FD(), m.Counters.FD(),
	}
}

// FromFiles makes a Steering of the descriptors of another one, as Files
// returned them. It duplicates them: the files stay the caller's. Program,
// slots, table, policy and counters are shared with the other one. No capability is
// needed on Linux 5.19 and later. It fails if the descriptors are something else, or
// of a version with another layout.
func FromFiles(files []*os.File) (*Steering, error) {
	if len(files) != numFiles {
		return nil, fmt.Errorf("%w: %d of %d", errFiles, len(files), numFiles)
	}
	s := &Steering{}
	slots := [numFiles]**ebpf.Map{
		1: &s.maps.Listeners, 2: &s.maps.ByAddrPort, 3: &s.maps.ByAddr, 4: &s.maps.Policies, 5: &s.maps.Counters,
	}
	for i, f := range files {
		if err := s.adopt(f, slots[i]); err != nil {
			// Methods of nil programs and maps accept nil.
			return nil, errors.Join(fmt.Errorf("%w: %s: %w", errFiles, fileNames[i], err), s.Close())
		}
	}
	if err := s.recognise(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// adopt duplicates the descriptor of f as a map, or as the program for nil m.
func (s *Steering) adopt(f *os.File, m **ebpf.Map) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	dup := -1
	ctlErr := raw.Control(func(fd uintptr) {
		dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return err
	}
	if m == nil {
		s.prog, err = ebpf.NewProgramFromFD(dup)
	} else {
		*m, err = ebpf.NewMapFromFD(dup)
	}
	return err // the constructors close dup if they fail
}

// recognise checks that program and maps are what this package loads and reads
// their sizes.
func (s *Steering) recognise() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	s.info = Info{
		MaxCores:  int(s.maps.Listeners.MaxEntries()),
		TableSize: int(s.maps.ByAddr.MaxEntries()),
		CPUs:      cpus,
	}
	spec, err := loadSteer()
	if err != nil {
		return err
	}
	resize(spec, s.info)
	// The program may be that of another version: names and layouts count.
	info, err := s.prog.Info()
	if err != nil {
		return fmt.Errorf("%w: program: %w", errFiles, err)
	}
	used, _ := info.MapIDs()
	for name, m := range map[string]*ebpf.Map{
		steerMapListeners: s.maps.Listeners, steerMapByAddrPort: s.maps.ByAddrPort, steerMapByAddr: s.maps.ByAddr,
		steerMapPolicies: s.maps.Policies, steerMapCounters: s.maps.Counters,
	} {
		if err := sameMap(spec.Maps[name], m, used); err != nil {
			return fmt.Errorf("%w: %s: %w", errFiles, name, err)
		}
	}
	if s.prog.Type() != ebpf.SkReuseport || info.Name != steerProgSteerMigrate && info.Name != steerProgSteerPlain {
		return fmt.Errorf("%w: program %s of type %v", errFiles, info.Name, s.prog.Type())
	}
	s.info.Migration = info.Name == steerProgSteerMigrate
	return nil
}

// sameMap compares shape and name with those of spec, and checks that the map is
// one of those that the program uses. A map whose content changes its meaning
// gets another name in steer.c.
func sameMap(spec *ebpf.MapSpec, m *ebpf.Map, used []ebpf.MapID) error {
	if err := spec.Compatible(m); err != nil {
		return err
	}
	info, err := m.Info()
	if err != nil {
		return err
	}
	if info.Name != spec.Name {
		return fmt.Errorf("is %q", info.Name)
	}
	if id, ok := info.ID(); !ok || !slices.Contains(used, id) {
		return errors.New("belongs to another program")
	}
	return nil
}
