package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// defaultTableSize is the number of entries of each table if Config does not
// say.
const defaultTableSize = 65536

// Config is the configuration of Load. With the zero value the kernel's hash decides until
// SetPolicy.
type Config struct {
	// MaxCores is the number of slots for listeners, at most MaxCores of
	// this package. 0: as many as the machine can have CPUs, or
	// Policy.Cores if that is more.
	MaxCores int
	// TableSize is the number of entries of each of the two tables. When a
	// table is full, a new entry pushes out the one that was used least
	// recently. The kernel hands out entries to CPUs in batches, so entries
	// may leave a table of less than a few hundred per CPU before it is
	// full. 0: 65536.
	TableSize int
	// Policy is in force from the start.
	Policy Policy
	// noMigration loads the program that does not move waiting connections
	// off a listener that closes, also where the kernel could.
	noMigration bool
}

// Info describes a loaded program.
type Info struct {
	// Migration says that connections waiting at a listener that closes move
	// to another one of the group. Without, they are reset.
	Migration bool `json:"migration"`
	// MaxCores is the number of slots.
	MaxCores int `json:"max_cores"`
	// TableSize is the number of entries of each table.
	TableSize int `json:"table_size"`
	// CPUs is the number of CPUs that the machine can have.
	CPUs int `json:"cpus"`
}

// Steering is a loaded program with its maps, for one SO_REUSEPORT group of
// listeners. See the package comment for goroutine-safety.
type Steering struct {
	info Info

	// mu is held for reading while the descriptors below are in use, and
	// for writing while slots or policy change and by Close.
	mu     sync.RWMutex
	closed bool
	prog   *ebpf.Program
	maps   steerMaps
}

// Load loads the program and creates its maps; Attach puts it to work. After an error the
// kernel keeps none of them: a *LoadError if the machine or the process lacks a feature, an
// error wrapping ErrPolicy for a bad policy.
func Load(cfg Config) (*Steering, error) {
	info, err := cfg.size()
	if err != nil {
		return nil, err
	}
	if err := check(cfg.Policy, info.MaxCores); err != nil {
		return nil, err
	}
	s, err := load(info, !cfg.noMigration)
	if err != nil {
		return nil, diagnose(err, thisHost())
	}
	if err := s.SetPolicy(cfg.Policy); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Probe loads the program, unloads it, and reports the result.
func Probe() (Info, error) {
	s, err := Load(Config{TableSize: 1})
	if err != nil {
		return Info{}, err
	}
	return s.Info(), s.Close()
}

// size fills in and checks the sizes of cfg.
func (cfg Config) size() (Info, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return Info{}, fmt.Errorf("count CPUs: %w", err)
	}
	info := Info{MaxCores: cfg.MaxCores, TableSize: cfg.TableSize, CPUs: cpus}
	if info.MaxCores == 0 {
		info.MaxCores = min(max(cpus, cfg.Policy.Cores), MaxCores)
	}
	if info.TableSize == 0 {
		info.TableSize = defaultTableSize
	}
	if info.MaxCores < 1 || info.MaxCores > MaxCores {
		return Info{}, fmt.Errorf("%w: %d slots, from 1 to %d are possible", errCore, info.MaxCores, MaxCores)
	}
	if info.TableSize < 1 || info.TableSize > 1<<24 {
		return Info{}, fmt.Errorf("table of %d entries, from 1 to %d are possible", info.TableSize, 1<<24)
	}
	return info, nil
}

// load brings program and maps into the kernel. With migrate it tries the
// program that migrates first.
func load(info Info, migrate bool) (*Steering, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, err
	}
	resize(spec, info)
	// Kernels before 5.14 know neither the attach type nor the field of the
	// context. The reason of a failure that both programs share is better
	// told by the plain one.
	if migrate {
		if s, err := loadProgram(spec, info, steerProgSteerMigrate); err == nil {
			return s, nil
		}
	}
	return loadProgram(spec, info, steerProgSteerPlain)
}

func resize(spec *ebpf.CollectionSpec, info Info) {
	spec.Maps[steerMapListeners].MaxEntries = uint32(info.MaxCores)
	spec.Maps[steerMapCounters].MaxEntries = uint32(info.MaxCores) + 1
	spec.Maps[steerMapByAddr].MaxEntries = uint32(info.TableSize)
	spec.Maps[steerMapByAddrPort].MaxEntries = uint32(info.TableSize)
}

func loadProgram(spec *ebpf.CollectionSpec, info Info, name string) (*Steering, error) {
	one := spec.Copy()
	one.Programs = map[string]*ebpf.ProgramSpec{name: one.Programs[name]}
	coll, err := ebpf.NewCollection(one)
	if err != nil {
		return nil, err
	}
	defer coll.Close() // maps and programs that were detached from it stay
	s := &Steering{info: info, prog: coll.DetachProgram(name)}
	s.info.Migration = name == steerProgSteerMigrate
	s.maps = steerMaps{
		ByAddr:     coll.DetachMap(steerMapByAddr),
		ByAddrPort: coll.DetachMap(steerMapByAddrPort),
		Counters:   coll.DetachMap(steerMapCounters),
		Listeners:  coll.DetachMap(steerMapListeners),
		Policies:   coll.DetachMap(steerMapPolicies),
	}
	return s, nil
}

// Info describes the loaded program. It works after Close, too.
func (s *Steering) Info() Info { return s.info }

// Close gives up the descriptors of program and maps. It does not detach: the
// program goes on steering, with the state that it has, as long as a listener
// of the group exists or another process has the descriptors. A second Close
// returns nil.
func (s *Steering) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.prog.Close(), s.maps.Close())
}

// use calls f with the descriptors held open.
func (s *Steering) use(f func() error) error {
	return s.with(s.mu.RLocker(), f)
}

// change runs f, which must not run twice at a time.
func (s *Steering) change(f func() error) error {
	return s.with(&s.mu, f)
}

func (s *Steering) with(lock sync.Locker, f func() error) error {
	lock.Lock()
	defer lock.Unlock()
	if s.closed {
		return fmt.Errorf("steering: %w", errClosed)
	}
	return f()
}

// errnoNotSupported is ENOTSUPP, the kernel's internal errno that attaching to
// a socket of the wrong kind lets out.
const errnoNotSupported = unix.Errno(524)

// Attach puts the program in charge of the SO_REUSEPORT group that listenerFD
// belongs to, all its listeners present and future. The program that was
// attached before, if any, is replaced in one step: no connection is decided
// without one of them. On an error the group is as before. The descriptor
// stays the caller's and is not needed afterwards.
//
// Sockets join a group by bind, so attach to a bound one. Multipath TCP, which
// package net listens with unless told not to, cannot be steered.
func (s *Steering) Attach(listenerFD int) error {
	err := s.use(func() error {
		return unix.SetsockoptInt(listenerFD, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, s.prog.FD())
	})
	switch {
	case err == nil, errors.Is(err, errClosed):
		return err
	case errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w: bound without SO_REUSEPORT: %w", errListener, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		err = fmt.Errorf("%w: not plain TCP (net.ListenConfig needs SetMultipathTCP(false)): %w", errListener, err)
	case errors.Is(err, errnoNotSupported), errors.Is(err, unix.ENOTSOCK), errors.Is(err, unix.EBADF):
		err = fmt.Errorf("%w: %w", errListener, err)
	}
	return fmt.Errorf("attach steering program: %w", err)
}
