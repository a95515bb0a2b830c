package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// aim is what a ratio of two results of a cell should be.
type aim struct {
	what, how      string
	load           Load // what is 0 there may be anything
	subject, rival string
	figure         figure
	least          bool    // the ratio should be the bound at least, else at most
	bound          float64 // 0: it is only shown
}

// figure is what a ratio is about.
type figure struct {
	name string
	of   func(Sample) float64
}

var (
	inRate = figure{"req/s", func(s Sample) float64 { return s.MessagesPerS }}
	inTail = figure{"p99", func(s Sample) float64 { return s.P99US }}
	inCPU  = figure{"CPU", func(s Sample) float64 { return s.ServerCPUUS }}
)

// storageAims are what the storage of this library is held against.
func storageAims() []aim {
	small, large := Load{Size: 4 << 10}, Load{Size: 64 << 10}
	deep := Load{Size: 4 << 10, Conns: 16, Depth: 16}
	wide := Load{Size: 4 << 10, Conns: 64, Depth: 1}
	return []aim{
		{StorageWrite, StorageDirect, deep, "io_uring", "ring", inRate, true, 0.95},
		{StorageWrite, StorageDirect, deep, "loop", "ring", inCPU, false, 1.15}, // without frames
		{StorageWrite, StorageDirect, deep, "io_uring", "loop", inCPU, false, 0},
		{StorageWrite, StorageDirect, deep, "io_uring", "net", inRate, true, 5},
		{StorageWrite, StorageDirect, deep, "io_uring", "net+procs", inRate, true, 1.1},
		{StorageWrite, StorageDirect, deep, "io_uring", "net+procs", inCPU, false, 0.5},
		{StorageWrite, StorageDirect, deep, "epoll", "io_uring", inRate, true, 0.95},
		{StorageRead, StorageDirect, deep, "epoll", "io_uring", inRate, true, 0.95},
		{StorageRead, StorageDirect, small, "io_uring", "ring", inRate, true, 0.95},
		{StorageRead, StorageDirect, small, "io_uring", "ring", inTail, false, 1.2},
		{StorageRead, StorageCached, large, "io_uring", "inline", inRate, true, 1},
		{StorageRead, StorageCached, large, "epoll", "inline", inRate, true, 1},
		{StorageRead, StorageUncached, wide, "io_uring", "inline", inRate, true, 2},
		{StorageRead, StorageUncached, deep, "io_uring", "inline", inRate, true, 2},
		{StorageNetwork, "io_uring", Load{}, ResultBusy, ResultIdle, inTail, false, 1.5},
		{StorageNetwork, "epoll", Load{}, ResultBusy, ResultIdle, inTail, false, 1.5},
		{StorageGroup, "io_uring, " + StorageDirect, Load{}, ResultGrouped, ResultAlone, inRate, true, 5},
		{StorageGroup, "io_uring, " + StorageDirect, Load{}, ResultGrouped, ResultEach, inRate, true, 0},
		{StorageGroup, "io_uring, " + StorageBuffered, Load{}, ResultGrouped, ResultAlone, inRate, true, 5},
		{StorageGroup, "io_uring, " + StorageBuffered, Load{}, ResultGrouped, ResultEach, inRate, true, 0},
		{StorageGroup, "epoll, " + StorageDirect, Load{}, ResultGrouped, ResultAlone, inRate, true, 5},
		{StorageGroup, "epoll, " + StorageDirect, Load{}, ResultGrouped, ResultEach, inRate, true, 0},
		{StorageGroup, "epoll, " + StorageBuffered, Load{}, ResultGrouped, ResultAlone, inRate, true, 5},
		{StorageGroup, "epoll, " + StorageBuffered, Load{}, ResultGrouped, ResultEach, inRate, true, 0},
	}
}

// fits says whether c is a cell of the aim.
func (a *aim) fits(c *StorageCell) bool {
	same := func(want, is int) bool { return want == 0 || want == is }
	return a.what == c.What && a.how == c.How && same(a.load.Size, c.Load.Size) && same(a.load.Conns, c.Load.Conns) && same(a.load.Depth, c.Load.Depth)
}

// judge says what r is to the aim.
func (a *aim) judge(r Ratio) string {
	met := func(v float64) bool { return a.least == (v >= a.bound) || v == a.bound }
	switch {
	case a.bound == 0:
		return "shown"
	case r.Rounds < EnoughRounds:
		return "unknown"
	case met(r.Median):
		return "met"
	case met(r.Min) || met(r.Max):
		return "near"
	}
	return "missed"
}

// The server that is the floor of a cell, how much of it a subject has at least that only the
// disk holds back, and how many CPUs it is busy on at most if it is the disk that it waits for:
// it is one thread.
const (
	floorServer = "ring"
	floorShare  = 0.9
	floorBusy   = 0.9
)

// disk says whether subject, which is r of the rival in c, misses an aim that the disk gives
// to nobody: the floor misses it too, while it has CPU to spare. floor is what the floor has
// of the rival. Only aims for the requests/s are meant, to others than the floor, and it is
// no excuse for one who has lost by himself: to the floor, to the rival in all rounds (which is
// every miss of an aim to be as fast as he), or to anybody who reaches the aim.
func (a *aim) disk(c *StorageCell, subject, rival *StorageResult, r Ratio) (floor Ratio, is bool) {
	bare := c.find(floorServer)
	if bare == nil || a.rival == floorServer || a.figure.name != inRate.name || !a.least {
		return Ratio{}, false
	}
	to := func(one, other *StorageResult) Ratio { return ratio(one.Samples, other.Samples, a.figure.of) }
	if floor = to(bare, rival); a.judge(r) != "missed" || a.judge(floor) != "missed" || to(subject, bare).Median < floorShare || r.Max < 1 {
		return floor, false
	}
	for i := range c.Results {
		if verdict := a.judge(to(&c.Results[i], rival)); verdict == "met" || verdict == "near" {
			return floor, false
		}
	}
	if c.Fio != nil && c.Fio.PerS >= a.bound*median(rival.Samples, a.figure.of) {
		return floor, false
	}
	return floor, median(bare.Samples, func(s Sample) float64 { return s.MessagesPerS * s.ServerCPUUS / 1e6 }) < floorBusy
}

// median is that of a figure of all rounds.
func median(samples []Sample, of func(Sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, of(s))
	}
	return Median(all)
}

// judged is a line about an aim in one cell.
type judged struct {
	verdict, of, in, is, aim string
	place                    string // the cell
	note                     string // what else is to be said, empty: nothing
}

// aims are the lines of all cells that an aim is about.
func (f *File) aims() (rows []judged) {
	for _, a := range storageAims() {
		for i := range f.Storage.Cells {
			c := &f.Storage.Cells[i]
			subject, rival := c.find(a.subject), c.find(a.rival)
			if !a.fits(c) || subject == nil || rival == nil {
				continue
			}
			r := ratio(subject.Samples, rival.Samples, a.figure.of)
			sign := map[bool]string{true: ">=", false: "<="}[a.least]
			bound := fmt.Sprintf("%s %.2f", sign, a.bound)
			if a.bound == 0 {
				bound = "-"
			}
			line := judged{
				verdict: a.judge(r), of: fmt.Sprintf("%s : %s", a.subject, a.rival), in: a.figure.name, is: r.String(), aim: bound, place: c.short(),
			}
			if floor, is := a.disk(c, subject, rival, r); is {
				line.verdict = "disk"
				line.note = fmt.Sprintf("disk: the floor, %s, has %.2f of %s in %s: the disk gives no more to anybody.", floorServer, floor.Median, a.rival, line.place)
			}
			rows = append(rows, line)
		}
	}
	return append(rows, f.allocsAim()...)
}

// noAllocs is what no allocation on the path looks like, with what the runtime does beside
// it.
const noAllocs = 0.02

// allocsAim is the most that a core allocates per request.
func (f *File) allocsAim() (rows []judged) {
	for _, server := range []string{"io_uring", "epoll"} {
		most, where := -1.0, ""
		for i := range f.Storage.Cells {
			c := &f.Storage.Cells[i]
			if r := c.find(server); r != nil && len(r.Allocs) > 0 && r.AllocsMedian > most {
				most, where = r.AllocsMedian, c.short()
			}
		}
		if most < 0 {
			continue
		}
		verdict := "missed"
		if most <= noAllocs {
			verdict = "met"
		}
		rows = append(rows, judged{verdict: verdict, of: server, in: "allocs", is: fmt.Sprintf("%.2f", most), aim: "0", place: "most: " + where})
	}
	return rows
}

// short is the cell in a few words.
func (c *StorageCell) short() string {
	return fmt.Sprintf("%s, %s, %s", strings.TrimPrefix(c.What, "durable "), c.How, c.Load.shape())
}

// shape is the load in a few letters.
func (l Load) shape() string {
	if l.Size == 0 {
		return fmt.Sprintf("%dx%d", l.Conns, l.Depth)
	}
	return l.String()
}

// find is the result of that name, nil: there is none with samples.
func (c *StorageCell) find(name string) *StorageResult {
	i := slices.IndexFunc(c.Results, func(r StorageResult) bool { return r.Server == name && len(r.Samples) > 0 })
	if i < 0 {
		return nil
	}
	return &c.Results[i]
}

// writeAims writes a line for each aim and cell that it is about.
func (f *File) writeAims(b *bytes.Buffer) {
	rows := f.aims()
	if len(rows) == 0 {
		return
	}
	b.WriteByte('\n')
	writeText(b, "What the library aims at, as medians of paired rounds (and their extremes):", f.width())
	table := [][]string{{"verdict", "ratio of", "in", "is", "aim"}}
	var places []string // in the order of the aims
	for _, row := range rows {
		if !slices.Contains(places, row.place) {
			places = append(places, row.place)
		}
	}
	for _, place := range places {
		table = append(table, []string{place})
		for _, row := range rows {
			if row.place == place {
				table = append(table, []string{"  " + row.verdict, row.of, row.in, row.is, row.aim})
			}
		}
	}
	writeAligned(b, table, f.width(), 0)
	counts := map[string]int{}
	for _, row := range rows {
		counts[row.verdict]++
	}
	var parts []string
	for _, v := range []string{"met", "near", "disk", "missed", "unknown"} {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	text := strings.Join(parts, ", ") + "."
	if counts["near"] > 0 {
		text += " near: the median misses the aim, but not all rounds do."
	}
	if counts["unknown"] > 0 {
		text += fmt.Sprintf(" unknown: --rounds %d is the least.", EnoughRounds)
	}
	writeText(b, text, f.width())
	for _, row := range rows {
		if row.note != "" {
			writeText(b, row.note, f.width())
		}
	}
}
