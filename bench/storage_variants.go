package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/uring"
)

// storageWorkers are the goroutines of the pool: as many as connections of the deepest
// load.
const storageWorkers = 16

// storageVariant is a storage server that can be compared.
type storageVariant struct {
	name  string
	about string
	raw   bool // speaks raw requests
	extra bool // compared only when it is named
	tuned bool // has the GOMAXPROCS that is the best for each cell
	// cached: compared only where the page cache has a part in it.
	cached bool
	start  func(cfg storage.Config) (storageServer, error)
}

// storageServer is a running one.
type storageServer interface {
	child.Server
	child.Describer
}

// storageVariants lists the servers of this build, the floor first.
func storageVariants() []storageVariant {
	ring, epoll := string(uring.IOUring), string(uring.Epoll)
	var list []storageVariant
	if uring.Flavour != uring.Epoll {
		list = append(list,
			storageVariant{
				name: "ring", raw: true, about: "a bare loop over a ring, without frames: the floor",
				start: func(cfg storage.Config) (storageServer, error) { return startedStorage(storage.NewRing(cfg, ring)) },
			},
			storageVariant{
				name: "loop", raw: true, about: "the messenger's loop and its files over a ring, without frames",
				start: func(cfg storage.Config) (storageServer, error) { return startedStorage(storage.NewLoop(cfg, ring)) },
			},
			storageVariant{
				name: "io_uring", about: "ringmsgr, one core, which reads and writes through the ring",
				start: func(cfg storage.Config) (storageServer, error) {
					return startedStorage(storage.NewMessenger(cfg, ring))
				},
			})
	}
	return append(list,
		storageVariant{
			name: "epoll", about: "ringmsgr over epoll, one core, which has Linux AIO, or threads, for files",
			start: func(cfg storage.Config) (storageServer, error) {
				return startedStorage(storage.NewMessenger(cfg, epoll))
			},
		},
		storageVariant{
			name: "pool", tuned: true, about: fmt.Sprintf("ringmsgr over epoll, and a pool of %d goroutines for files; its best GOMAXPROCS", storageWorkers),
			start: startPool,
		},
		storageVariant{
			name: "pool+cpus", extra: true, about: "the same with GOMAXPROCS as it is", start: startPool,
		},
		storageVariant{
			name: "net", about: "package net, a goroutine per connection, which calls ReadAt and WriteAt", start: startNet,
		},
		storageVariant{
			name: "net+procs", tuned: true, about: "the same with its best GOMAXPROCS", start: startNet,
		},
		storageVariant{
			name: "inline", cached: true, about: "ringmsgr over epoll, one core, which calls pread itself and waits",
			start: func(cfg storage.Config) (storageServer, error) {
				return startedStorage(storage.NewInline(cfg, epoll))
			},
		})
}

func startPool(cfg storage.Config) (storageServer, error) {
	return startedStorage(storage.NewPool(cfg, string(uring.Epoll), storageWorkers))
}

func startNet(cfg storage.Config) (storageServer, error) {
	return startedStorage(storage.NewBlocking(cfg))
}

// startedStorage avoids an interface that holds a nil pointer.
func startedStorage[S storageServer](s S, err error) (storageServer, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// usualStorage lists what is compared if nothing is named.
func usualStorage() string {
	var names []string
	for _, v := range storageVariants() {
		if !v.extra {
			names = append(names, v.name)
		}
	}
	return strings.Join(names, ",")
}

// findStorage finds a variant by its name.
func findStorage(name string) (storageVariant, error) {
	all := storageVariants()
	i := slices.IndexFunc(all, func(v storageVariant) bool { return v.name == name })
	if i < 0 {
		return storageVariant{}, fmt.Errorf("unknown storage server %q", name)
	}
	return all[i], nil
}

// takesPart says whether the variant is compared in a cell.
func (v *storageVariant) takesPart(c *report.StorageCell) bool {
	return !v.cached || c.How == report.StorageCached || c.How == report.StorageUncached
}
