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
)

var (
	errNotFound = errors.New("there is no such key")
	errDamaged  = errors.New("a record is damaged")
)

// Store is the store of cmd/ringkv as it is without cores: an index and a log, in one file,
// under a mutex. It is spared what ringkv does in the background: it never compacts, and
// knows no damage but a tail that is not whole, which it cuts off when it starts. Any
// goroutine may use it.
type Store struct {
	log
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

// place is where a record is, with its key and value.
type place struct {
	off int64
	header
}

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
	s := &Store{log: newLog(salt), file: f, each: each, index: map[string]place{}}
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
	p := make([]byte, recordHead+MaxKey+MaxValue)
	for {
		n, err := s.file.ReadAt(p[:recordHead+MaxKey], s.end)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n < recordHead {
			break
		}
		h, ok := s.parse(p)
		if !ok || n < recordHead+h.key || !s.holds(p[:recordHead+h.key], s.end) {
			break
		}
		if _, err := s.read(place{s.end, h}, p); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, errDamaged) {
				break
			}
			return err
		}
		s.index[string(p[recordHead:recordHead+h.key])] = place{s.end, h}
		s.end += h.size()
	}
	s.durable = s.end
	return errors.Join(s.file.Truncate(s.end), s.file.Sync())
}

// read reads a record into p and returns its value.
func (s *Store) read(at place, p []byte) ([]byte, error) {
	p = p[:at.size()]
	if _, err := s.file.ReadAt(p, at.off); err != nil {
		return nil, err
	}
	h, ok := s.parse(p)
	value := p[recordHead+at.key:]
	if !ok || h != at.header || !s.holds(p[:recordHead+at.key], at.off) || s.valueSum(value) != h.sum {
		return nil, fmt.Errorf("%w: at %d", errDamaged, at.off)
	}
	return value, nil
}

// Get reads a value into p, which has room for a record: recordHead, the key and the value.
// What is not durable yet is not seen.
func (s *Store) Get(key, p []byte) ([]byte, error) {
	s.mu.Lock()
	at, ok := s.index[string(key)]
	s.mu.Unlock()
	if !ok {
		return nil, errNotFound
	}
	return s.read(at, p)
}

// Put appends a record. It counts when Commit(to) has returned.
func (s *Store) Put(key, value []byte) (to int64, err error) {
	if len(key) == 0 || len(key) > MaxKey || len(value) == 0 || len(value) > MaxValue {
		return 0, fmt.Errorf("a key of %d bytes and a value of %d", len(key), len(value))
	}
	h := header{key: len(key), value: len(value), sum: s.valueSum(value)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return 0, s.broken
	}
	h.durable = uint64(s.durable)
	s.head = append(s.head[:0], make([]byte, recordHead+len(key))...)
	s.put(s.head, h, key, s.end)
	n, err := unix.Pwritev(int(s.file.Fd()), [][]byte{s.head, value}, s.end)
	if err == nil && int64(n) < h.size() {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.broken = os.NewSyscallError("pwritev", err)
		return 0, s.broken
	}
	s.waiting = append(s.waiting, entry{string(key), place{s.end, h}})
	s.end += h.size()
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
