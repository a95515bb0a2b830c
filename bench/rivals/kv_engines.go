package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble"
	"go.etcd.io/bbolt"
)

const (
	// boltDelay is how long a batch waits for others. The default, 10 ms, has the clients of
	// a server that are fewer than a batch wait for it each time.
	boltDelay = time.Millisecond
	// boltMap is mapped at once: a file that grows beyond what is mapped has to wait for its
	// readers.
	boltMap = 1 << 30
	// pebbleCache has room for all values; the other stores have the page cache.
	pebbleCache = 256 << 20
	// pebbleMemTable is what CockroachDB has. The default, 4 MiB, is soon full of values of
	// 64 KiB.
	pebbleMemTable = 64 << 20
)

// bolt is go.etcd.io/bbolt. A put that is alone is a transaction of its own (Update); those
// that meet others share one, with its syncs (Batch), which its documents recommend for
// concurrent writers. The list of free pages is a map, and is not written, as in etcd.
type bolt struct {
	db   *bbolt.DB
	puts atomic.Int32 // under way
}

var boltBucket = []byte("values")

func openBolt(dir string) (*bolt, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: boltMap,
	})
	if err != nil {
		return nil, err
	}
	db.MaxBatchDelay = boltDelay
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(boltBucket)
		return err
	})
	if err == nil {
		err = syncDir(dir) // bbolt syncs the file, not its name
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &bolt{db: db}, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (b *bolt) put(key, value []byte) error {
	write := func(tx *bbolt.Tx) error { return tx.Bucket(boltBucket).Put(key, value) }
	defer b.puts.Add(-1)
	if b.puts.Add(1) == 1 {
		return b.db.Update(write)
	}
	return b.db.Batch(write)
}

func (b *bolt) get(key []byte, found func(value []byte)) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		if value := tx.Bucket(boltBucket).Get(key); value != nil {
			found(value)
		}
		return nil
	})
}

func (b *bolt) settings() map[string]string {
	return map[string]string{"bbolt": version("go.etcd.io/bbolt"), "MaxBatchDelay": boltDelay.String()}
}

func (b *bolt) close() error { return b.db.Close() }

// pebbles is cockroachdb/pebble. Each put waits for its sync (pebble.Sync), which its commit
// pipeline shares among those that are under way.
type pebbles struct{ db *pebble.DB }

func openPebble(dir string) (*pebbles, error) {
	cache := pebble.NewCache(pebbleCache)
	defer cache.Unref() // the store has its own
	db, err := pebble.Open(dir, &pebble.Options{Cache: cache, MemTableSize: pebbleMemTable, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	return &pebbles{db}, nil
}

func (r *pebbles) put(key, value []byte) error { return r.db.Set(key, value, pebble.Sync) }

func (r *pebbles) get(key []byte, found func(value []byte)) error {
	value, closer, err := r.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	found(value)
	return closer.Close()
}

func (r *pebbles) settings() map[string]string {
	return map[string]string{"pebble": version("github.com/cockroachdb/pebble"), "cache": "256 MiB", "memtable": "64 MiB"}
}

func (r *pebbles) close() error { return r.db.Close() }

// quiet drops what pebble says in passing. What it cannot go on after ends the process.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}

// version is that of a module that this program is built with.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "unknown"
}
