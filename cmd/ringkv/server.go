package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/control"
)

// server is the store of a messenger.
type server struct {
	m       *control.Messenger
	dir     string
	cores   int
	segment int64 // bytes of a file, about
	log     *slog.Logger
}

const (
	segmentSize = 64 << 20
	maxScan     = 1000 // keys in one answer
)

var errNotServed = errors.New("the core of this key does not serve")

// open makes the indexes of all cores, and lets them serve. It waits for the disk: not on a
// core.
func (v *server) open() error {
	all, errs := make([]*shard, v.cores), make(chan error, v.cores)
	for i := range all {
		made := make(chan *shard, 1)
		v.m.Core(i).Do(func(c *control.Core) {
			s := shards.Of(c)
			s.init(v, c)
			made <- s
		})
		all[i] = <-made
	}
	disk := v.m.Disk()
	if err := all[0].offload(func() error { return errors.Join(disk.MakeDir(v.dir), disk.SyncDir(filepath.Dir(v.dir))) }); err != nil {
		return err
	}
	for _, s := range all {
		go func() {
			err := s.recover()
			s.core.Do(func(*control.Core) {
				if s.open = err == nil; s.open {
					s.settle()
				}
				errs <- err
			})
		}()
	}
	var err error
	for range all {
		err = errors.Join(err, <-errs)
	}
	return err
}

// handle takes a message of a client (Dispatcher.Fast), and brings it to the core that has
// its key.
func (v *server) handle(c *control.Conn, m *control.Message) bool {
	at := c.OwnerCore()
	if m.Type < msgPut || m.Type > msgScan || at == nil {
		return false
	}
	home, err := 0, valid(m)
	if m.Type != msgScan { // which visits all of them
		home = int(crc32.Checksum(m.Front, castagnoli) % uint32(v.cores))
	}
	to := v.m.Core(home)
	if to == nil {
		err = errNotServed
	}
	r := shards.Of(at).newRequest()
	r.do, r.due = m.Type, c.Later(m)
	if err != nil {
		r.fail(shards.Of(at), err)
		return true
	}
	m.Retain() // a value is written from where it was received
	if r.msg = m; to == at {
		r.begin(at)
	} else {
		to.Post(&r.Task)
	}
	return true
}

func valid(m *control.Message) error {
	switch {
	case m.Type == msgScan:
	case len(m.Front) == 0 || len(m.Front) > maxKey:
		return fmt.Errorf("a key of %d bytes: want 1 to %d", len(m.Front), maxKey)
	case m.Type == msgPut && (len(m.Data) == 0 || len(m.Data) > maxValue):
		return fmt.Errorf("a value of %d bytes: want 1 to %d", len(m.Data), maxValue)
	}
	return nil
}

// scan takes the keys of one core, and goes on to the next one.
func (s *shard) scan(r *request) {
	prefix, least := string(r.msg.Front), string(r.msg.Data)
	n := s.index.seek([]byte(max(prefix, least)))
	for taken := 0; n != nil && strings.HasPrefix(n.key, prefix) && taken < maxScan; n = n.next[0] {
		if n.in != nil {
			r.keys = append(r.keys, n.key)
			taken++
		}
	}
	if next := s.core.ID() + 1; next < s.kv.cores {
		if to := s.kv.m.Core(next); to != nil {
			to.Post(&r.Task)
		} else {
			r.fail(s, errNotServed)
		}
		return
	}
	slices.Sort(r.keys)
	m := control.NewMessage(msgDone, nil, nil)
	for _, key := range r.keys[:min(maxScan, len(r.keys))] {
		m.Data = append(binary.AppendUvarint(m.Data, uint64(len(key))), key...)
	}
	r.send(s, m)
}
