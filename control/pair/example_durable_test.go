package pair_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The requests of the notebook are acts behind firstType; its answers:
const (
	firstType uint16 = 1000
	done      uint16 = 1010 + iota // Data: the value
	missing
	failed // Front: why
)

var (
	errMissing = errors.New("there is no such note")
	errRefused = errors.New("the notebook says")
	errDamaged = errors.New("the notebook is damaged")
)

// notebook is a small durable server of one core, with all values in one file: each change
// writes a new one, durably, gives it the name of the old one, and makes that durable.
type notebook struct {
	m       *control.Messenger
	notes   map[string][]byte // that are acknowledged
	waiting []change          // the first one is being made
	defect                    // that a test has planted
}

type change struct {
	due   control.PendingReply
	key   string
	value []byte // nil: it is deleted
}

// defect is what a careless server does not do.
type defect struct{ noSync, noDirectory, noParent, noCRC, tooEarly, noErrors bool }

const book, draft = "/notes/book", "/notes/draft"

// open reads the book.
func (n *notebook) open(p *pair.Pair) (*control.Dispatcher, error) {
	*n = notebook{m: p.Server, notes: map[string][]byte{}, defect: n.defect}
	opened := make(chan error, 1)
	n.m.Core(0).Do(func(c *loop.Core) {
		var err error
		c.Offload(func() { err = n.read() }, func(*loop.Core) { opened <- err })
	})
	return &control.Dispatcher{Fast: n.serve}, <-opened
}

func (n *notebook) read() error {
	d, err := n.m.OpenFile(book, loop.FileOptions{})
	if errors.Is(err, fs.ErrNotExist) {
		if err = n.m.Disk().MakeDir("/notes"); err == nil && !n.noParent {
			err = n.m.Disk().SyncDir("/")
		}
		return err
	} else if err != nil {
		return err
	}
	data := make([]byte, d.Size())
	_, err = d.ReadAt(data, 0)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if len(data) < 4 || !n.noCRC && binary.LittleEndian.Uint32(data) != crc32.ChecksumIEEE(data[4:]) {
		return errDamaged
	}
	if err := json.Unmarshal(data[4:], &n.notes); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if n.noDirectory {
		return nil
	}
	// The process before may have been killed when the book had its name, and that was not
	// durable: what is read from now on must stay.
	return n.m.Disk().SyncDir("/notes")
}

// serve is on the core.
func (n *notebook) serve(c *control.Conn, m *control.Message) bool {
	key, due := string(m.Front), c.Later(m)
	switch act := pair.Act(m.Type - firstType); {
	case act == pair.Get:
		answer(due, n.notes[key], nil)
	case act == pair.Delete && n.notes[key] == nil:
		answer(due, nil, errMissing)
	default:
		if n.tooEarly {
			answer(due, []byte{}, nil)
		}
		n.waiting = append(n.waiting, change{due, key, slices.Clone(m.Data)})
		if len(n.waiting) == 1 {
			n.next(c.Core())
		}
	}
	return true
}

func answer(due control.PendingReply, value []byte, err error) {
	m := control.NewMessage(done, nil, value)
	switch {
	case err == nil && value == nil, errors.Is(err, errMissing):
		m.Type = missing
	case err != nil:
		m.Type, m.Front = failed, []byte(err.Error())
	}
	if due.Send(m) != nil {
		m.Release() // nobody waits for it, or reads it
	}
}

// next makes the first change that waits.
func (n *notebook) next(c *loop.Core) {
	first, notes := n.waiting[0], maps.Clone(n.notes)
	if notes[first.key] = first.value; len(first.value) == 0 {
		delete(notes, first.key)
	}
	text, _ := json.Marshal(notes) // never fails
	data := append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(text)), text...)
	opt := loop.FileOptions{Write: true, Create: true, Truncate: true}
	c.OpenFile(draft, opt, func(c *loop.Core, f *loop.File, err error) {
		if err != nil {
			n.made(c, notes, err)
			return
		}
		op := &loop.FileOp{Done: func(c *loop.Core, op *loop.FileOp) {
			f.Close()
			n.name(c, notes, op.Err)
		}}
		how := loop.Through
		if n.noSync {
			how = loop.Written
		}
		if err := f.WriteAt(op, data, 0, how); err != nil {
			n.made(c, notes, err)
		}
	})
}

// name makes a draft that is durable the book.
func (n *notebook) name(c *loop.Core, notes map[string][]byte, err error) {
	c.Offload(func() {
		if err == nil {
			err = n.m.Disk().Rename(draft, book)
		}
		if err == nil && !n.noDirectory {
			err = n.m.Disk().SyncDir("/notes")
		}
	}, func(c *loop.Core) { n.made(c, notes, err) })
}

// made ends a change.
func (n *notebook) made(c *loop.Core, notes map[string][]byte, err error) {
	if err == nil {
		n.notes = notes
	}
	if n.noErrors {
		err = nil
	}
	if !n.tooEarly {
		answer(n.waiting[0].due, []byte{}, err)
	}
	if n.waiting = n.waiting[1:]; len(n.waiting) > 0 && !c.Gone() {
		n.next(c)
	}
}

// askFor is a client of the notebook.
func askFor(ctx context.Context, c *control.Conn, act pair.Act, key string, value []byte) ([]byte, error) {
	m, err := c.Call(ctx, control.NewMessage(firstType+uint16(act), []byte(key), value))
	if err != nil {
		return nil, err
	}
	defer m.Release()
	switch m.Type {
	case missing:
		return nil, errMissing
	case failed:
		return nil, fmt.Errorf("%w: %s", errRefused, m.Front)
	}
	return slices.Clone(m.Data), nil
}

// serverOf is a notebook with a defect, as it is tested.
func serverOf(seed uint64, d defect) pair.Durable {
	s := pair.Durable{Open: (&notebook{defect: d}).open, Ask: askFor, Missing: errMissing, Refused: errRefused, Pause: time.Second}
	s.Pair.Seed = seed
	return s
}

var seeds = pair.SeedFlags("notebook", 20)

// A test of a durable server: whatever happens to its disk or its process, what it has
// acknowledged is there.
func ExampleEndure() {
	var t *testing.T // of your test
	notebookEndures(t)
}

func notebookEndures(t *testing.T) {
	pair.Endure(t, seeds, func(seed uint64) pair.Durable {
		return serverOf(seed, defect{})
	}, func(w *pair.World) { w.Flip("/notes", errDamaged) })
}

// Matrix: KV-13
func TestTheNotebookHolds(t *testing.T) { notebookEndures(t) }
