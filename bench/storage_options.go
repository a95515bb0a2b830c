package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// storageOptions are what --storage measures.
type storageOptions struct {
	what    storageChoice
	dir     string
	size    int64
	io      []string // the ways to the file
	servers []storageVariant
	base    string
	chosen  bool // somebody has said which cells
	keys    int  // of key-value servers
	// total bounds a run that nobody has said the rounds of; zero: nothing does.
	total time.Duration
}

const (
	storageSize      = "1GiB"
	storageQuickSize = "256MiB"
	storageSizeMax   = 1 << 40
	storageSizes     = "4KiB,64KiB"
	storageLoads     = "1x1,64x1,16x16"
	storageRounds    = 5
	storageSlice     = 120 * time.Millisecond
	storageQuick     = 100 * time.Millisecond
	// storageWarm is as long as a disk and a server need to be as busy as they become, if
	// every open request was answered once by then; else that is waited for.
	storageWarm = 30 * time.Millisecond
	// storageTotal and storageQuickTotal leave room in the promised times for compiling.
	storageTotal      = 350 * time.Second
	storageQuickTotal = 52 * time.Second
)

// Values of --storage-io.
var storageWays = map[string]string{"direct": report.StorageDirect, "cached": report.StorageCached, "uncached": report.StorageUncached}

// storageChoice is the value of --storage.
type storageChoice string

const (
	storageFiles storageChoice = "files"
	storageKV    storageChoice = "kv"
)

func (s *storageChoice) String() string   { return string(*s) }
func (s *storageChoice) IsBoolFlag() bool { return true }
func (s *storageChoice) Set(text string) error {
	switch text {
	case "true", "files":
		*s = storageFiles
	case "kv":
		*s = storageKV
	case "false":
		*s = ""
	default:
		return errors.New("must be files or kv")
	}
	return nil
}

// joinStorage has a word behind --storage be its value: package flag knows values of such a
// flag, which needs none, behind a "=" only.
func joinStorage(args []string) []string {
	list := slices.Clone(args)
	for i := 0; i+1 < len(list) && list[i] != "--"; i++ {
		if (list[i] == "--storage" || list[i] == "-storage") && !strings.HasPrefix(list[i+1], "-") {
			list = slices.Replace(list, i, i+2, list[i]+"="+list[i+1])
		}
	}
	return list
}

// findDir chooses the directory of files, and says whether it can be written to.
func (s *storageOptions) findDir() error {
	if s.dir == "" {
		s.dir = "/var/tmp"
		if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
			s.dir = os.TempDir()
		}
	}
	if err := writable(filepath.Join(s.dir, "file")); err != nil {
		return fmt.Errorf("--storage-dir %s: %w", s.dir, err)
	}
	return nil
}

// storageFlags are the flags of --storage.
type storageFlags struct{ size, io *string }

// addStorageFlags defines them.
func addStorageFlags(set *flag.FlagSet, o *storageOptions) storageFlags {
	set.Var(&o.what, "storage", "measure servers that read and durably write a file, instead of echoes; or kv, key-value servers")
	set.StringVar(&o.dir, "storage-dir", "", "`directory` of the files, on the disk that is meant (default /var/tmp)")
	return storageFlags{
		size: set.String("storage-size", "", "`size` of that file (default "+storageSize+", with --quick "+storageQuickSize+")"),
		io:   set.String("storage-io", "", "ways to that file, a comma `list` (default direct,cached,uncached)"),
	}
}

// unused names a flag that is given without --storage.
func (f *storageFlags) unused(s *storageOptions) error {
	for name, value := range map[string]string{"size": *f.size, "io": *f.io, "dir": s.dir} {
		if value != "" {
			return fmt.Errorf("--storage-%s %s is nothing without --storage", name, value)
		}
	}
	return nil
}

// complete fills in the rest, of what was given for all kinds of runs too. It reports what
// is wrong.
func (s *storageOptions) complete(o *options, f storageFlags, servers, sizes, shapes string) error {
	var errs []error
	of := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	usual := storageSize
	if o.quick {
		usual = storageQuickSize
	}
	var sizeErr, err error
	s.size, sizeErr = quantity.ParseBytes(cmp.Or(*f.size, usual), storageSizeMax)
	of("--storage-size", sizeErr)
	s.io, err = parseList(cmp.Or(*f.io, "direct,cached,uncached"), func(name string) (string, error) {
		if way, ok := storageWays[name]; ok {
			return way, nil
		}
		return "", fmt.Errorf("%q is none of direct, cached and uncached", name)
	})
	of("--storage-io", err)
	errs = append(errs, s.findDir())
	s.servers, err = parseList(cmp.Or(servers, usualStorage()), findStorage)
	of("--servers", err)
	o.sizes, err = parseList(cmp.Or(sizes, storageSizes), parseSize)
	of("--sizes", err)
	o.shapes, err = parseList(cmp.Or(shapes, storageLoads), parseShape)
	of("--loads", err)
	s.chosen = sizes != "" || shapes != "" || *f.io != ""
	if o.rounds == 0 {
		s.total = storageTotal
		if o.quick {
			s.total = storageQuickTotal
		}
	}
	slice := storageSlice
	if o.quick {
		slice = storageQuick
	}
	o.rounds, o.slice = cmp.Or(o.rounds, storageRounds), cmp.Or(o.slice, slice)
	need := int64(1) // bytes that the largest load has under way
	for _, size := range o.sizes {
		if size%blocks.Size != 0 || size > blocks.MaxLen {
			errs = append(errs, fmt.Errorf("--sizes %d: want multiples of %d up to %d", size, blocks.Size, blocks.MaxLen))
		}
		for _, shape := range o.shapes {
			need = max(need, int64(size)*int64(shape.conns*shape.depth))
		}
	}
	if sizeErr == nil && s.size < need {
		errs = append(errs, fmt.Errorf("--storage-size %d has no room for the %d bytes of the largest load", s.size, need))
	}
	has := func(name string) bool {
		return slices.ContainsFunc(s.servers, func(v storageVariant) bool { return v.name == name })
	}
	switch {
	case len(s.servers) == 0:
	case o.base != "":
		if s.base = o.base; !has(s.base) {
			errs = append(errs, fmt.Errorf("--base %s is not among the servers", s.base))
		}
		o.base = ""
	case has("ring"):
		s.base = "ring"
	case has("epoll"):
		s.base = "epoll"
	default:
		s.base = s.servers[0].name
	}
	return errors.Join(errs...)
}

// storageCells lists the cells of the grid: those that the aims are about first, as what comes
// last is left out when time is short.
func (o *options) storageCells() (cells []report.StorageCell) {
	add := func(what, how string, size int, s shape) {
		c := report.StorageCell{What: what, How: how, Base: o.storage.base, Load: report.Load{Size: size, Conns: s.conns, Depth: s.depth}}
		same := func(d report.StorageCell) bool { return d.What == what && d.How == how && d.Load == c.Load }
		if !slices.ContainsFunc(cells, same) {
			cells = append(cells, c)
		}
	}
	if o.quick && !o.storage.chosen {
		add(report.StorageWrite, report.StorageDirect, 4<<10, shape{16, 16})
		add(report.StorageRead, report.StorageDirect, 4<<10, shape{16, 16})
		add(report.StorageRead, report.StorageCached, 64<<10, shape{16, 16})
		add(report.StorageRead, report.StorageUncached, 4<<10, shape{64, 1})
		return cells
	}
	for _, what := range []string{report.StorageWrite, report.StorageRead} {
		for _, how := range o.storage.io {
			if what == report.StorageWrite && how != report.StorageDirect {
				how = report.StorageBuffered
			}
			for _, size := range o.sizes {
				for _, s := range o.shapes {
					add(what, how, size, s)
				}
			}
		}
	}
	return cells
}

// spans are how long the longest cell of each kind has taken.
type spans map[string]time.Duration

func (s spans) add(c *report.StorageCell, took time.Duration) {
	kind := c.What + ", " + c.How
	s[kind] = max(s[kind], took)
}

// expect is how long a cell takes at most by what is known: as the longest of its kind, or
// as the longest of all if it is the first one.
func (s spans) expect(c *report.StorageCell) time.Duration {
	if took, ok := s[c.What+", "+c.How]; ok {
		return took
	}
	most := time.Duration(0)
	for _, took := range s {
		most = max(most, took)
	}
	return most
}
