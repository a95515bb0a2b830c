package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// blockDevices has a directory for each block device, by its numbers.
const blockDevices = "/sys/dev/block"

// statFlushes is the column of a device's statistics that counts flushes.
const statFlushes = 15

// Flushes returns how often the device that the file is on was told to flush its cache, by
// everybody. It is not known where nobody counts them: of a file system without a device of
// its own (tmpfs, overlayfs, btrfs), of a device over several others, and of one that has
// never counted any.
func (f *File) Flushes() (n uint64, known bool) {
	var st unix.Stat_t
	if unix.Fstat(int(f.f.Fd()), &st) != nil {
		return 0, false
	}
	return flushesOf(blockDevices, unix.Major(st.Dev), unix.Minor(st.Dev))
}

// flushesOf is what the device of these numbers has counted.
func flushesOf(root string, major, minor uint32) (n uint64, known bool) {
	dir, err := countingDevice(filepath.Join(root, fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, false
	}
	columns := strings.Fields(string(text))
	if len(columns) <= statFlushes {
		return 0, false // an older kernel
	}
	n, err = strconv.ParseUint(columns[statFlushes], 10, 64)
	return n, err == nil && n > 0
}

// countingDevice finds the device that counts what dir is asked to flush: a partition does
// not count, nor does a device that passes requests on to another one.
func countingDevice(dir string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(filepath.Join(real, "partition")); err == nil {
			return filepath.Dir(real), nil
		}
		below, err := os.ReadDir(filepath.Join(real, "slaves"))
		switch {
		case err != nil || len(below) == 0:
			return real, nil
		case len(below) > 1:
			return "", fmt.Errorf("%s: is over %d devices", real, len(below))
		}
		dir = filepath.Join(real, "slaves", below[0].Name())
	}
}
