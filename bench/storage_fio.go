package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
)

// fioTime is how long fio is run for each cell.
const fioTime = 500 * time.Millisecond

// findFio finds the program fio.
func findFio() (string, error) { return exec.LookPath("fio") }

// stock is the program fio, and what it works on.
type stock struct {
	program string        // empty: it is not there
	dir     string        // of the file that it writes
	own     *storage.File // that file; nil: it has not written yet
	failed  map[string]bool
}

// close ends its file.
func (f *stock) close() {
	if f.own != nil {
		f.own.Close()
		f.own = nil
	}
}

// takesPart says whether there is a line of it in a cell.
func (f *stock) takesPart(c *report.StorageCell) bool {
	return f.program != "" && c.How == report.StorageDirect && !f.failed[c.What]
}

// fail says that it cannot do what c does.
func (f *stock) fail(c *report.StorageCell) {
	if f.failed == nil {
		f.failed = map[string]bool{}
	}
	f.failed[c.What] = true
}

// on returns the file for a cell: that of the servers, which is disk, if it is read. What fio
// writes are no blocks: it gets a file of its own for that, which is made once, as large as
// theirs and in the same way, because random writes into a smaller one may be much faster.
func (f *stock) on(c *report.StorageCell, disk storage.Config) (storage.Config, error) {
	if c.What != report.StorageWrite {
		return disk, nil
	}
	if f.own == nil {
		own, err := storage.NewFile(f.dir, disk.Size)
		if err != nil {
			return storage.Config{}, err
		}
		f.own = own
	}
	return f.own.Config(), nil
}

// fioOutput is what is used of its output.
type fioOutput struct {
	Jobs []struct {
		Read  fioSide `json:"read"`
		Write fioSide `json:"write"`
		User  float64 `json:"usr_cpu"` // percent of a CPU
		Sys   float64 `json:"sys_cpu"`
	} `json:"jobs"`
}

type fioSide struct {
	IOPS    float64 `json:"iops"`
	Latency struct {
		Percentile map[string]float64 `json:"percentile"` // nanoseconds
	} `json:"clat_ns"`
}

// run has fio read or write a file (on) as a cell does, from one thread, with as many
// requests under way.
func (f *stock) run(ctx context.Context, file storage.Config, c *report.StorageCell) (*report.Fio, error) {
	args := []string{
		"--name=scale", "--filename=" + file.Path, "--size=" + strconv.FormatInt(file.Size, 10), "--bs=" + strconv.Itoa(c.Load.Size),
		"--direct=1", "--ioengine=io_uring", "--iodepth=" + strconv.Itoa(c.Load.Conns*c.Load.Depth), "--thread", "--time_based",
		"--runtime=" + strconv.FormatInt(fioTime.Milliseconds(), 10) + "ms", "--output-format=json", "--percentile_list=50:99", "--allow_file_create=0",
	}
	if c.What == report.StorageWrite {
		args = append(args, "--rw=randwrite", "--sync=dsync")
	} else {
		args = append(args, "--rw=randread")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.program, args...)
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.program, err)
	}
	return parseFio(text)
}

// parseFio takes what is needed out of fio's JSON.
func parseFio(text []byte) (*report.Fio, error) {
	var out fioOutput
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("output of fio: %w", err)
	}
	if len(out.Jobs) != 1 {
		return nil, fmt.Errorf("output of fio: %d jobs", len(out.Jobs))
	}
	job := &out.Jobs[0]
	side := &job.Read
	if side.IOPS == 0 {
		side = &job.Write
	}
	if side.IOPS == 0 {
		return nil, fmt.Errorf("output of fio: it has moved nothing")
	}
	return &report.Fio{
		PerS: side.IOPS, P50US: side.Latency.Percentile["50.000000"] / 1e3, P99US: side.Latency.Percentile["99.000000"] / 1e3,
		CPUUS: (job.User + job.Sys) / 100 * 1e6 / side.IOPS,
	}, nil
}

// fileSystem names what a directory is on.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs: memory, not a disk",
		unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.NFS_SUPER_MAGIC: "nfs", 0x2fc12fc1: "zfs",
	}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
