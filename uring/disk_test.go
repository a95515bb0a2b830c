package uring_test

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Matrix: KV-08
func TestADirectoryIsLockedByOneAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	for range 2 {
		first, err := uring.LockDir(dir)
		must(t, err)
		if _, err := uring.LockDir(dir); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("locked twice: %v", err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
}
