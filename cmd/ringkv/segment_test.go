package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// noted is a disk that notes what changes a directory.
type noted struct {
	uring.Host
	did *[]string
}

func (d noted) Open(path string, opt uring.FileOptions) (int, error) {
	*d.did = append(*d.did, "open "+filepath.Base(path))
	return d.Host.Open(path, opt)
}

func (d noted) Remove(path string) error {
	*d.did = append(*d.did, "remove "+filepath.Base(path))
	return d.Host.Remove(path)
}

func (d noted) SyncDir(dir string) error {
	*d.did = append(*d.did, "sync")
	return d.Host.SyncDir(dir)
}

// The name of a segment says where the log before it ends: a file that says so now is
// removed when another one says it durably.
func TestAFileInWhichNothingCountsStaysUntilTheNextSegmentIsDurable(t *testing.T) {
	var did []string
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: dataplane.Config{Cores: 1, Disk: noted{did: &did}},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := &server{m: m, dir: t.TempDir()}
	for i, old := range [][]string{nil, {"1"}, {"2", "missing"}} {
		did = nil
		g := &segment{path: filepath.Join(v.dir, fmt.Sprint(i+1))}
		var paths, want []string
		want = []string{"open " + fmt.Sprint(i+1), "sync"}
		for _, name := range old {
			paths, want = append(paths, filepath.Join(v.dir, name)), append(want, "remove "+name, "sync")
		}
		if err := v.create(g, paths); err != nil {
			t.Fatal(err)
		}
		if err := g.opened.Close(); err != nil || !slices.Equal(did, want) {
			t.Errorf("%v, %v, want %v", did, err, want)
		}
	}
}
