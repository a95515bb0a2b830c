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

const (
	fioTime = time.Second // how long fio is run for each cell
	fioFile = 64 << 20    // size of the file that it writes, in bytes
)

// findFio finds the program fio.
func findFio() (string, error) { return exec.LookPath("fio") }

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

// runFio has fio read or write the file as a cell does, from one thread, with as many
// requests under way.
func runFio(ctx context.Context, program, dir string, cfg storage.Config, c *report.StorageCell) (*report.Fio, error) {
	args := []string{
		"--name=scale", "--filename=" + cfg.Path, "--size=" + strconv.FormatInt(cfg.Size, 10), "--bs=" + strconv.Itoa(c.Load.Size),
		"--direct=1", "--ioengine=io_uring", "--iodepth=" + strconv.Itoa(c.Load.Conns*c.Load.Depth), "--thread", "--time_based",
		"--runtime=" + strconv.Itoa(int(fioTime.Seconds())), "--output-format=json", "--percentile_list=50:99", "--allow_file_create=0",
	}
	if c.What == report.StorageWrite {
		// What it writes are no blocks: it gets a file of its own.
		own, err := storage.NewFile(dir, min(cfg.Size, fioFile))
		if err != nil {
			return nil, err
		}
		defer own.Close()
		args[1], args[2] = "--filename="+own.Path(), "--size="+strconv.FormatInt(own.Config().Size, 10)
		args = append(args, "--rw=randwrite", "--sync=dsync")
	} else {
		args = append(args, "--rw=randread")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
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
