package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// devices makes directories of block devices as the kernel has them: files by their path,
// and links with what they lead to.
func devices(t *testing.T, files, links map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, to := range links {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, to), path); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// stat is that of a device with so many flushes.
func stat(flushes string) string {
	return "  1 2 3 4 5 6 7 8 0 10 11 12 13 14 15 " + flushes + " 17\n"
}

// Matrix: BE-10
func TestFlushesAreThoseOfTheDeviceThatCountsThem(t *testing.T) {
	root := devices(t, map[string]string{
		"disk/stat":               stat("640"),
		"disk/part/partition":     "1\n",
		"disk/part/stat":          stat("0"),
		"mapped/stat":             stat("0"),
		"striped/stat":            stat("9"),
		"striped/slaves/one/stat": stat("5"),
		"striped/slaves/two/stat": stat("6"),
		"old/stat":                strings.Join(strings.Fields(stat("640"))[:11], " "),
		"silent/stat":             stat("0"),
	}, map[string]string{
		"8:0": "disk", "8:1": "disk/part", "253:0": "mapped", "253:1": "striped", "9:0": "old", "9:1": "silent",
		"mapped/slaves/part": "disk/part",
	})
	for _, c := range []struct {
		name         string
		major, minor uint32
		want         uint64 // 0: not known
	}{
		{"a disk", 8, 0, 640},
		{"a partition, which does not count", 8, 1, 640},
		{"a device over a partition", 253, 0, 640},
		{"a device over two", 253, 1, 0},
		{"a kernel that does not count", 9, 0, 0},
		{"a device that never counted any", 9, 1, 0},
		{"no device", 0, 37, 0},
	} {
		n, known := flushesOf(root, c.major, c.minor)
		if known != (c.want > 0) || known && n != c.want {
			t.Errorf("%s: %d, %v, want %d", c.name, n, known, c.want)
		}
	}
}
