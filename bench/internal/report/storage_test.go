package report

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// storageResult has samples of so many requests/s.
func storageResult(name string, rates ...float64) StorageResult {
	r := StorageResult{Result: Result{Server: name, Syscalls: Syscalls{PerMessage: []float64{1}, How: "counted"}}, Allocs: []float64{0.004}}
	for i, rate := range rates {
		r.Samples = append(r.Samples, Sample{
			Round: i + 1, Replies: 100000, MessagesPerS: rate, MBPerS: rate / 250, P50US: 1e6 / rate, P99US: 3e6 / rate, P999US: 9e6 / rate, ServerCPUUS: 1e6 / rate, ClientCPUUS: 5,
		})
	}
	return r
}

// cannedStorage meets one aim, misses one, and comes near to one.
func cannedStorage() *File {
	tuned := storageResult("net+procs", 60000, 61000, 59000, 60000, 62000)
	tuned.Procs, tuned.Tried = 18, map[int]float64{2: 1000, 18: 60000, 4: 2000}
	alone, each, grouped := storageResult(ResultAlone, 1000, 1000, 1000, 1000, 1000), storageResult(ResultEach, 3000, 3100, 2900, 3000, 3000), storageResult(ResultGrouped, 4000, 4500, 5500, 4800, 4900)
	alone.Flushes, grouped.Flushes = []float64{1, 1.002, 1.001, 1, 1}, []float64{0.011, 0.012, 0.0124, 0.013, 0.2} // nobody counts those of each
	f := &File{Storage: &Storage{
		Dir: "/somewhere", FileSystem: "ext4", Size: 1 << 30,
		Servers: []Server{{Name: "ring", About: "the floor"}, {Name: "io_uring", About: "one"}},
		Cells: []StorageCell{
			{
				What: StorageWrite, How: StorageDirect, Base: "ring", Load: Load{Size: 4096, Conns: 16, Depth: 16},
				Results: []StorageResult{
					storageResult("ring", 100000, 100000, 100000, 100000, 100000),
					storageResult("io_uring", 96000, 97000, 98000, 99000, 95000),
					storageResult("net", 50000, 50000, 50000, 50000, 50000), tuned,
					{Result: Result{Server: "inline"}},
				},
				Fio: &Fio{PerS: 120000, P50US: 2000, P99US: 3000, CPUUS: 4},
			},
			{
				What: StorageGroup, How: "io_uring, buffered", Base: ResultAlone, Load: Load{Size: 4096, Conns: 16, Depth: 16},
				Results: []StorageResult{alone, each, grouped},
			},
			{
				What: StorageNetwork, How: "io_uring", Base: ResultIdle, Load: Load{Conns: 64, Depth: 1},
				Results: []StorageResult{storageResult(ResultIdle, 1000), storageResult(ResultBusy, 900)},
			},
		},
	}}
	for i := range f.Storage.Cells {
		f.Storage.Cells[i].Compute()
	}
	return f
}

func TestStorageComesBackEqualFromJSON(t *testing.T) {
	f := cannedStorage()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got File
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, f) {
		t.Errorf("%+v\n%+v", got.Storage, f.Storage)
	}
}

// Matrix: BE-12
func TestEachAimOfStorageIsJudgedByItsRounds(t *testing.T) {
	f := cannedStorage()
	got := map[string]string{}
	for _, row := range f.aims() {
		got[row.of+" "+row.in] = row.verdict
	}
	for what, want := range map[string]string{
		"io_uring : ring req/s":      "met",
		"io_uring : net req/s":       "missed", // twice is not five times
		"io_uring : net+procs req/s": "met",
		"io_uring : net+procs CPU":   "missed",
		"grouped : one by one req/s": "near", // one round meets it
		"grouped : one each req/s":   "shown",
		"busy : idle p99":            "unknown",
		"io_uring allocs":            "met",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
	if len(got) != 8 {
		t.Errorf("%v", got)
	}
	f.Storage.Cells[0].Results[1].AllocsMedian = 0.5
	if rows := f.allocsAim(); rows[0].verdict != "missed" {
		t.Errorf("half an allocation per request: %v", rows)
	}
}

func TestTheTablesOfStorageFitAHundredColumns(t *testing.T) {
	var b bytes.Buffer
	if err := cannedStorage().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"durable write, direct: 4 KiB, 16 connections, depth 16 (medians of 5 rounds)", "(fio)", "inline     not measured",
		"net+procs: GOMAXPROCS 18 is the best of 2, 4, 18.", "network only, io_uring: 64 connections, depth 1 (one round)",
		"\n  group commit, io_uring, buffered, 4 KiB 16x16\n    near     grouped : one by one   req/s  4.80 (4.00..5.50)  >= 5.00\n    shown      grouped : one each   req/s  1.60 (1.33..1.90)        -\n",
		"3 met, 1 near, 2 missed, 1 unknown.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(line)) - 1; n > DefaultWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Who reads the ratio to those that ask for a sync each sees whether the disk has made one.
// Matrix: BE-10
func TestTheFlushesOfGroupCommitAreShownBesideItsRates(t *testing.T) {
	f := cannedStorage()
	var b bytes.Buffer
	f.writeStorageCell(&b, &f.Storage.Cells[1])
	got := map[string]string{} // the last column of the first block
	for line := range strings.Lines(b.String()) {
		for _, name := range []string{"server", ResultAlone, ResultEach, ResultGrouped} {
			rest, is := strings.CutPrefix(strings.TrimSpace(line), name)
			if columns := strings.Fields(rest); is && got[name] == "" && len(columns) > 0 {
				got[name] = columns[len(columns)-1]
			}
		}
	}
	for name, want := range map[string]string{"server": "flushes", ResultAlone: "1.000", ResultEach: "-", ResultGrouped: "0.012"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q in\n%s", name, got[name], want, b.String())
		}
	}
	b.Reset()
	if f.writeStorageCell(&b, &f.Storage.Cells[0]); strings.Contains(b.String(), "flushes") {
		t.Errorf("flushes of a disk that everybody uses:\n%s", b.String())
	}
}

// What an older run has kept, which had no writes one by one, is shown as it was.
func TestAnOlderRunIsShownWithoutWhatItDidNotMeasure(t *testing.T) {
	f := cannedStorage()
	group := &f.Storage.Cells[1]
	group.Base, group.Results = ResultEach, group.Results[1:]
	for i := range group.Results {
		group.Results[i].Flushes = nil
	}
	group.Compute()
	var b bytes.Buffer
	if err := f.WriteTable(&b); err != nil || !strings.Contains(b.String(), "shown      grouped : one each") || strings.Contains(b.String(), ResultAlone) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// writes is a run with one cell, that of the aim to have five times net, where fio does so many
// writes/s.
func writes(fio float64, results ...StorageResult) *File {
	c := StorageCell{
		What: StorageWrite, How: StorageDirect, Base: "ring", Load: Load{Size: 4096, Conns: 16, Depth: 16}, Results: results,
	}
	if fio > 0 {
		c.Fio = &Fio{PerS: fio}
	}
	for _, r := range c.Results {
		for i := range r.Samples {
			r.Samples[i].ServerCPUUS = 100 // a tenth of a CPU at 1000/s
		}
	}
	c.Compute()
	return &File{Storage: &Storage{Cells: []StorageCell{c}}}
}

// Matrix: BE-12
func TestAnAimThatTheDiskGivesToNobodyIsNoLoss(t *testing.T) {
	all := func(name string, rate float64) StorageResult {
		return storageResult(name, rate, rate, rate, rate, rate)
	}
	net, ours := all("net", 1000), all("io_uring", 1300)
	for name, c := range map[string]struct {
		f    *File
		want string
	}{
		"the floor has no more":                     {writes(0, all("ring", 1380), ours, net), "disk"},
		"nor has anybody else":                      {writes(4900, all("ring", 1380), ours, net, all("pool", 1900)), "disk"},
		"the floor meets it":                        {writes(0, all("ring", 5100), all("io_uring", 4800), net), "missed"},
		"the floor meets it in a round":             {writes(0, storageResult("ring", 4000, 4000, 4000, 4000, 5100), all("io_uring", 4000), net), "missed"},
		"the floor has no CPU to spare":             {writes(0, all("ring", 13800), all("io_uring", 13000), all("net", 10000)), "missed"},
		"there is no floor":                         {writes(0, ours, net), "missed"},
		"the floor has too few rounds":              {writes(0, storageResult("ring", 1380, 1380, 1380, 1380), ours, net), "missed"},
		"we have too few rounds":                    {writes(0, all("ring", 1380), storageResult("io_uring", 1300, 1300), net), "unknown"},
		"we have lost to the floor":                 {writes(0, all("ring", 1500), ours, net), "missed"},
		"we have nine tenths of the floor":          {writes(0, all("ring", 1440), ours, net), "disk"},
		"the rival has more than we have":           {writes(0, all("ring", 990), all("io_uring", 990), net), "missed"},
		"the rival has more but in a round":         {writes(0, all("ring", 990), storageResult("io_uring", 990, 990, 1001, 990, 990), net), "disk"},
		"another server meets it":                   {writes(0, all("ring", 1380), ours, net, all("pool", 5000)), "missed"},
		"another server meets it in a round":        {writes(0, all("ring", 1380), ours, net, storageResult("pool", 4000, 4000, 5000, 4000, 4000)), "missed"},
		"a program without a network meets it":      {writes(5000, all("ring", 1380), ours, net), "missed"},
		"we come near to it, the floor does not":    {writes(0, all("ring", 4900), storageResult("io_uring", 4800, 4800, 5000, 4800, 4800), net), "near"},
		"we meet it though the floor does not":      {writes(0, all("ring", 4900), all("io_uring", 5000), net), "met"},
		"there are too few rounds to judge anybody": {writes(0, storageResult("ring", 1380), storageResult("io_uring", 1300), storageResult("net", 1000)), "unknown"},
	} {
		for _, row := range c.f.aims() {
			if row.of != "io_uring : net" {
				continue
			}
			if row.verdict != c.want || (row.note != "") != (c.want == "disk") {
				t.Errorf("%s: %q, want %q, and %q is said", name, row.verdict, c.want, row.note)
			}
		}
	}
	// Other aims are as they were.
	c := &writes(0, all("ring", 1000), all("io_uring", 1000), all("epoll", 990), net).Storage.Cells[0]
	for _, a := range []aim{
		{subject: "io_uring", rival: "ring", figure: inRate, least: true, bound: 1.2},
		{subject: "epoll", rival: "io_uring", figure: inRate, least: true, bound: 1},
		{subject: "io_uring", rival: "net", figure: inCPU, least: true, bound: 1.2},
		{subject: "io_uring", rival: "net", figure: inRate, bound: 0.5},
	} {
		subject, rival := c.find(a.subject), c.find(a.rival)
		r := ratio(subject.Samples, rival.Samples, a.figure.of)
		if _, is := a.disk(c, subject, rival, r); is || a.judge(r) != "missed" {
			t.Errorf("%s : %s in %s: %q, the disk: %v", a.subject, a.rival, a.figure.name, a.judge(r), is)
		}
	}
}

// Matrix: BE-12
func TestWhatTheDiskDoesNotGiveIsCountedAndSaid(t *testing.T) {
	all := func(name string, rate float64) StorageResult {
		return storageResult(name, rate, rate, rate, rate, rate)
	}
	f := writes(0, all("ring", 1380), all("io_uring", 1300), all("net", 1000), all("net+procs", 1200))
	f.Width = 200
	var b bytes.Buffer
	f.writeAims(&b)
	for _, want := range []string{
		"\n    disk          io_uring : net   req/s  1.30 (1.30..1.30)  >= 5.00\n", "1 met, 1 disk, 3 missed.",
		"\ndisk: the floor, ring, has 1.38 of net in write, direct, 4 KiB 16x16: the disk gives no more to anybody.\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
