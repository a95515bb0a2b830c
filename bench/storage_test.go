package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/uring"
)

// storageOf parses arguments of --storage.
func storageOf(t *testing.T, args string) options {
	t.Helper()
	o, err := parseOptions(append([]string{"--storage"}, strings.Fields(args)...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStorageHasACellForEachPromisedLoad(t *testing.T) {
	o := storageOf(t, "")
	count := map[string]int{}
	for _, c := range o.storageCells() {
		count[c.What+", "+c.How]++
	}
	for kind, want := range map[string]int{
		"durable write, direct": 6, "durable write, buffered": 6, "read, direct": 6, "read, cached": 6, "read, uncached": 6,
	} {
		if count[kind] != want {
			t.Errorf("%s: %d cells, want %d", kind, count[kind], want)
		}
	}
	if o.storage.size != 1<<30 || o.rounds < report.EnoughRounds || o.storage.total != storageTotal {
		t.Errorf("%+v", o)
	}
	o = storageOf(t, "--quick")
	if n := len(o.storageCells()); n != 4 || o.rounds < report.EnoughRounds || o.storage.total != storageQuickTotal {
		t.Errorf("%d quick cells, %+v", n, o)
	}
	o = storageOf(t, "--quick --sizes 8KiB --loads 2x2,1x1 --storage-io cached --storage-size 1MiB --rounds 3 --servers net,epoll")
	if n := len(o.storageCells()); n != 4 || o.storage.size != 1<<20 || o.storage.total != 0 || o.storage.base != "epoll" || len(o.storage.servers) != 2 {
		t.Errorf("%d chosen cells, %+v", n, o)
	}
}

func TestACellIsExpectedToTakeAsLongAsTheLongestOfItsKind(t *testing.T) {
	cell := func(what, how string) *report.StorageCell { return &report.StorageCell{What: what, How: how} }
	read, cached, write := cell(report.StorageRead, report.StorageDirect), cell(report.StorageRead, report.StorageCached), cell(report.StorageWrite, report.StorageDirect)
	s := spans{}
	if got := s.expect(read); got != 0 {
		t.Errorf("the first cell: %v", got)
	}
	s.add(write, 13*time.Second)
	s.add(read, 7*time.Second)
	s.add(read, 9*time.Second)
	s.add(read, 8*time.Second)
	for c, want := range map[*report.StorageCell]time.Duration{read: 9 * time.Second, write: 13 * time.Second, cached: 13 * time.Second} {
		if got := s.expect(c); got != want {
			t.Errorf("%s, %s: %v, want %v", c.What, c.How, got, want)
		}
	}
}

func TestWrongArgumentsOfStorageAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--storage=paper":            "must be files or kv",
		"--servers floor":            `unknown storage server "floor"`,
		"--servers net --base epoll": "--base epoll",
		"--sizes 64":                 "--sizes 64",
		"--sizes 2MiB":               "--sizes 2097152",
		"--loads 1":                  `load "1"`,
		"--storage-size much":        "--storage-size",
		"--storage-size 64KiB":       "--storage-size 65536 has no room",
		"--storage-io paper":         `--storage-io: "paper"`,
		"--rounds -1":                "--rounds -1",
		"more":                       `"more"`,
	} {
		_, err := parseOptions(append([]string{"--storage"}, strings.Fields(args)...), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
	}
}

func TestFlagsOfStorageAreRefusedWithoutIt(t *testing.T) {
	for _, flag := range []string{"--storage-size=1GiB", "--storage-io=direct", "--storage-dir=/"} {
		if _, err := parseOptions([]string{flag}, io.Discard); err == nil || !strings.Contains(err.Error(), "nothing without --storage") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestWhatFioSaysIsUnderstood(t *testing.T) {
	got, err := parseFio([]byte(`{"jobs": [{"read": {"iops": 0}, "usr_cpu": 10, "sys_cpu": 40,
		"write": {"iops": 50000, "clat_ns": {"percentile": {"50.000000": 20000, "99.000000": 31000}}}}]}`))
	if err != nil || *got != (report.Fio{PerS: 50000, P50US: 20, P99US: 31, CPUUS: 10}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "{}", `{"jobs": [{}]}`} {
		if _, err := parseFio([]byte(text)); err == nil {
			t.Errorf("%q is understood", text)
		}
	}
}

// Matrix: BE-11
func TestFioWritesOneFileThatIsAsLargeAsThatOfTheServers(t *testing.T) {
	const size = 1 << 20
	disk, err := storage.NewFile(t.TempDir(), size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the file system has no files without a name")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	f := stock{program: "fio", dir: t.TempDir()}
	defer f.close()
	read, write := report.StorageCell{What: report.StorageRead, How: report.StorageDirect}, report.StorageCell{What: report.StorageWrite, How: report.StorageDirect}
	if got, err := f.on(&read, disk.Config()); err != nil || got != disk.Config() {
		t.Errorf("it reads %+v, %v", got, err)
	}
	own, err := f.on(&write, disk.Config())
	if err != nil || own.Size != size || own.Path == disk.Config().Path {
		t.Errorf("it writes %+v beside %+v, %v", own, disk.Config(), err)
	}
	if st, err := os.Stat(own.Path); err != nil || st.Size() != size {
		t.Errorf("%v, %v", st, err)
	}
	if again, err := f.on(&write, disk.Config()); err != nil || again != own {
		t.Errorf("it writes %+v behind %+v, %v", again, own, err)
	}
	name, err := os.Readlink(own.Path)
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	if still, _ := os.Readlink(own.Path); still == name {
		t.Errorf("%s is open at the end", name)
	}
}

// Matrix: BE-11
func TestWhatFioCannotDoIsLeftOutAlone(t *testing.T) {
	f := stock{program: "fio", dir: "/nonexistent"}
	read, write := report.StorageCell{What: report.StorageRead, How: report.StorageDirect}, report.StorageCell{What: report.StorageWrite, How: report.StorageDirect}
	if _, err := f.on(&write, storage.Config{Size: 1 << 20}); err == nil {
		t.Error("a file was made in /nonexistent")
	}
	f.fail(&write)
	if f.takesPart(&write) || !f.takesPart(&read) {
		t.Errorf("writes: %v, reads: %v", f.takesPart(&write), f.takesPart(&read))
	}
	if f.takesPart(&report.StorageCell{What: report.StorageRead, How: report.StorageCached}) || new(stock).takesPart(&read) {
		t.Error("it takes part through the page cache, or though it is not there")
	}
}

// A short run of every server on a small file. The client checks every answer, and reads
// back what was acknowledged, so that a server that does not do its work fails the run.
// Matrix: BE-10
func TestEveryStorageServerIsMeasured(t *testing.T) {
	t.Setenv(asProgram, "1")
	path := filepath.Join(t.TempDir(), "storage.json")
	args := strings.Fields("--storage --storage-size 4MiB --sizes 4KiB --loads 16x16 --rounds 1 --slice 5ms")
	var stdout, stderr bytes.Buffer
	if status := run(append(args, "--storage-dir", t.TempDir(), "--json", path), nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	f := readReport(t, path)
	direct := !slices.ContainsFunc(f.Notes, func(n string) bool { return strings.Contains(n, "nothing is measured with direct I/O") })
	loopDevice := slices.ContainsFunc(f.Notes, func(n string) bool { return strings.Contains(n, "in a loop device") })
	fio, _ := findFio()
	seen := map[string]int{}
	for _, c := range f.Storage.Cells {
		seen[c.What]++
		for _, r := range c.Results {
			if len(r.Samples) != 1 || r.Median.MessagesPerS <= 0 || r.Median.P99US < r.Median.P50US || len(r.Allocs) != 1 || r.Syscalls.How == "" {
				t.Errorf("%s: %+v", c.Title(), r)
			}
			// A loop device has a cache, which each sync that nobody shares has to flush.
			if n := len(r.Flushes); loopDevice && r.Server == report.ResultAlone && n > 0 && r.FlushesMedian < 0.9 || c.What != report.StorageGroup && n > 0 {
				t.Errorf("%s: %s has %v flushes per write", c.Title(), r.Server, r.Flushes)
			}
			if tuned := strings.HasPrefix(r.Server, "pool") || r.Server == "net+procs"; tuned != (r.Procs > 0) || tuned && len(r.Tried) == 0 {
				t.Errorf("%s: %s has %d Ps of %v", c.Title(), r.Server, r.Procs, r.Tried)
			}
		}
		if grid := c.What == report.StorageRead || c.What == report.StorageWrite; grid {
			want := len(storageVariants()) - 2 // without the extra one and that for the page cache
			if c.How == report.StorageCached || c.How == report.StorageUncached {
				want++
			}
			if len(c.Results) != want {
				t.Errorf("%s: %d servers, want %d", c.Title(), len(c.Results), want)
			}
			if c.How == report.StorageDirect && fio != "" && c.Fio == nil {
				t.Errorf("%s: fio was not run: %q", c.Title(), f.Notes)
			}
		} else if want := map[string]int{report.StorageNetwork: 2, report.StorageGroup: 3}[c.What]; len(c.Results) != want {
			t.Errorf("%s: %d results", c.Title(), len(c.Results))
		}
	}
	want := map[string]int{report.StorageRead: 2, report.StorageWrite: 1, report.StorageNetwork: 0}
	flavours := 1
	if uring.Flavour != uring.Epoll {
		flavours++
	}
	if direct {
		want[report.StorageRead]++
		want[report.StorageWrite]++
		want[report.StorageNetwork] = 2 + flavours
	}
	if seen[report.StorageGroup] < flavours { // the file system that is made for it may have direct I/O
		t.Errorf("%d cells of group commit", seen[report.StorageGroup])
	}
	for what, n := range want {
		if seen[what] != n {
			t.Errorf("%s: %d cells, want %d", what, seen[what], n)
		}
	}
	if out := stdout.String() + stderr.String(); (fio == "" && direct) != strings.Contains(out, "NO STOCK PROGRAM") {
		t.Errorf("fio %q, and this is said of it:\n%s", fio, out)
	}
	for line := range strings.Lines(stdout.String()) {
		if n := len([]rune(line)) - 1; n > report.DefaultWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	var shown bytes.Buffer
	if status := run([]string{"--show", path}, nil, &shown, io.Discard); status != exitOK || !strings.Contains(shown.String(), "What the library aims at") {
		t.Errorf("--show: status %d\n%s", status, shown.String())
	}
}

// Matrix: BE-10
func TestGroupCommitIsComparedWithWritesOneByOneAndAllAtOnce(t *testing.T) {
	for how, also := range map[string]uint8{report.StorageDirect: blocks.Direct, report.StorageBuffered: 0} {
		all := groupResults(&storageTarget{}, how)
		var got []string
		for _, p := range all {
			got = append(got, fmt.Sprintf("%s %#x", p.name, p.flags))
		}
		want := []string{
			fmt.Sprintf("one by one %#x", blocks.Alone|also), fmt.Sprintf("one each %#x", also), fmt.Sprintf("grouped %#x", blocks.Grouped|also),
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", how, got, want)
		}
	}
}

func TestTheRequestsOfACellAreWhatItsNameSays(t *testing.T) {
	for _, c := range []struct {
		what, how string
		flags     uint8 // of the one that takes part
		kind      blocks.Kind
		want      uint8
	}{
		{report.StorageRead, report.StorageDirect, 0, blocks.Read, blocks.Direct},
		{report.StorageRead, report.StorageCached, 0, blocks.Read, 0},
		{report.StorageWrite, report.StorageDirect, 0, blocks.Write, blocks.Direct},
		{report.StorageWrite, report.StorageBuffered, 0, blocks.Write, blocks.Grouped},
		{report.StorageGroup, "io_uring, direct", blocks.Direct, blocks.Write, blocks.Direct},
		{report.StorageGroup, "io_uring, buffered", blocks.Grouped, blocks.Write, blocks.Grouped},
		{report.StorageGroup, "io_uring, buffered", blocks.Alone, blocks.Write, blocks.Alone},
		{report.StorageNetwork, "io_uring", 0, blocks.Ping, 0},
	} {
		p := prepared{flags: c.flags}
		o := p.options(&report.StorageCell{What: c.what, How: c.how}, storage.Config{})
		if o.Kind != c.kind || o.Flags != c.want {
			t.Errorf("%s, %s: kind %d, flags %#x", c.what, c.how, o.Kind, o.Flags)
		}
	}
}
