package kv

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/kvformat"
)

// RecordSize is what a record has at most, in bytes.
const RecordSize = kvformat.HeaderSize + kvformat.MaxKey + kvformat.MaxValue

var (
	errNotFound = errors.New("there is no such key")
	errDamaged  = errors.New("a record is damaged")
)

// Store is the store of cmd/ringkv as it is without cores: an index and a log, in one file,
// under a mutex. It is spared what ringkv does in the background: it never compacts, and
// knows no damage but a tail that is not whole, which it cuts off when it starts. Any
// goroutine may use it.
type Store struct {
	salt uint32
	file *os.File
	each bool // a sync for each put

	mu      sync.Mutex
	synced  sync.Cond // a sync has ended
	index   map[string]place
	waiting []entry // appended, not durable, in the order of the log
	end     int64   // of the log
	durable int64   // below that it is
	syncing bool    // somebody does
	broken  error   // a write or a sync has failed
	head    []byte  // of the record that is being written
}

// place is where a record is.
type place struct{ off, size int64 }

type entry struct {
	key string
	at  place
}

// Open opens the store in a directory, or makes it. With each there is a sync for each put,
// under the mutex; else one of those who wait syncs for all (Commit).
func Open(dir string, each bool) (*Store, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("%08x.log", rand.Uint32()))
	if len(paths) > 0 {
		path = paths[0]
	}
	var salt uint32
	if _, err := fmt.Sscanf(filepath.Base(path), "%08x.log", &salt); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s := &Store{salt: salt, file: f, each: each, index: map[string]place{}}
	s.synced.L = &s.mu
	if err = s.replay(); err == nil {
		err = syncDir(dir) // its name is durable before anything in it
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// replay makes the index of what is in the log, and cuts off what is not whole.
func (s *Store) replay() error {
	p := make([]byte, RecordSize)
	for {
		n, err := s.file.ReadAt(p[:kvformat.HeaderSize+kvformat.MaxKey], s.end)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		r, ok := kvformat.Read(p[:n], s.salt, s.end)
		if !ok {
			break
		}
		key, at := string(r.Key), place{r.Off, r.Size}
		if _, err := s.read(key, at, p); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, errDamaged) {
				break
			}
			return err
		}
		s.index[key] = at
		s.end += r.Size
	}
	s.durable = s.end
	return errors.Join(s.file.Truncate(s.end), s.file.Sync())
}

// read reads a record into p and returns its value.
func (s *Store) read(key string, at place, p []byte) ([]byte, error) {
	p = p[:at.size]
	if _, err := s.file.ReadAt(p, at.off); err != nil {
		return nil, err
	}
	r, _ := kvformat.Read(p, s.salt, at.off)
	if !r.Whole || string(r.Key) != key {
		return nil, fmt.Errorf("%w: at %d", errDamaged, at.off)
	}
	return r.Value, nil
}

// Get reads a value into p, which has room for a record: RecordSize.
// What is not durable yet is not seen.
func (s *Store) Get(key, p []byte) ([]byte, error) {
	s.mu.Lock()
	at, ok := s.index[string(key)]
	s.mu.Unlock()
	if !ok {
		return nil, errNotFound
	}
	return s.read(string(key), at, p)
}

// Put appends a record. It counts when Commit(to) has returned.
func (s *Store) Put(key, value []byte) (to int64, err error) {
	if len(key) == 0 || len(key) > kvformat.MaxKey || len(value) == 0 || len(value) > kvformat.MaxValue {
		return 0, fmt.Errorf("a key of %d bytes and a value of %d", len(key), len(value))
	}
	r := kvformat.Record{Key: key, Value: value, Sum: kvformat.Sum(value)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return 0, s.broken
	}
	r.Off = s.end
	s.head = r.AppendHeader(s.head[:0], s.salt)
	n, err := unix.Pwritev(int(s.file.Fd()), [][]byte{s.head, value}, s.end)
	size := int64(len(s.head) + len(value))
	if err == nil && int64(n) < size {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.broken = os.NewSyscallError("pwritev", err)
		return 0, s.broken
	}
	s.waiting = append(s.waiting, entry{string(key), place{s.end, size}})
	s.end += size
	if s.each {
		s.sync()
	}
	return s.end, s.broken
}

// Commit returns when the log is durable up to to: one of those who wait syncs for all
// whose records are in the log by then, and the next one for those who come meanwhile.
func (s *Store) Commit(to int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.durable < to && s.broken == nil {
		if s.syncing {
			s.synced.Wait()
			continue
		}
		s.syncing = true
		s.sync()
		s.syncing = false
		s.synced.Broadcast()
	}
	return s.broken
}

// sync makes durable what is in the log, and has it count. It is called with the lock, which
// others have meanwhile if they share it.
func (s *Store) sync() {
	to := s.end
	if !s.each {
		s.mu.Unlock()
	}
	err := unix.Fdatasync(int(s.file.Fd()))
	if !s.each {
		s.mu.Lock()
	}
	if err != nil {
		s.broken = os.NewSyscallError("fdatasync", err)
		return
	}
	s.durable = to
	n := 0
	for ; n < len(s.waiting) && s.waiting[n].at.off < to; n++ {
		s.index[s.waiting[n].key] = s.waiting[n].at
	}
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
}

// Close closes the file. What is acknowledged is durable.
func (s *Store) Close() error { return s.file.Close() }
