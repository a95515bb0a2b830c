package uring

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Matrix: IO-12
func TestMapRoundsUpToZeroedPages(t *testing.T) {
	page := os.Getpagesize()
	for _, size := range []int{1, page, page + 1} {
		m, err := Map(size)
		must(t, err)
		if n := len(m.Bytes()); n < size || n%page != 0 || n >= size+page {
			t.Errorf("Map(%d) has %d bytes", size, n)
		}
		for i, b := range m.Bytes() {
			if b != 0 {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
		for range 2 {
			must(t, m.Unmap())
		}
		if m.Bytes() != nil {
			t.Error("bytes after Unmap")
		}
	}
}

func TestMapRefusesNonsense(t *testing.T) {
	for _, size := range []int{0, -1, int(^uint(0) >> 1)} {
		if m, err := Map(size); err == nil || m != nil {
			t.Errorf("Map(%d): %v, %v", size, m, err)
		}
	}
	if _, err := Map(0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Map(0): %v", err)
	}
}
