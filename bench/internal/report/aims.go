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

// aims are the lines of all cells that an aim is about.
func (f *File) aims() (rows [][]string) {
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
			rows = append(rows, []string{
				a.judge(r), fmt.Sprintf("%s : %s", a.subject, a.rival), a.figure.name, r.String(), bound,
				c.short(),
			})
		}
	}
	return append(rows, f.allocsAim()...)
}

// noAllocs is what no allocation on the path looks like, with what the runtime does beside
// it.
const noAllocs = 0.02

// allocsAim is the most that a core allocates per request.
func (f *File) allocsAim() (rows [][]string) {
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
		rows = append(rows, []string{verdict, server, "allocs", fmt.Sprintf("%.2f", most), "0", "most: " + where})
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
		if place := row[5]; !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	for _, place := range places {
		table = append(table, []string{place})
		for _, row := range rows {
			if row[5] == place {
				table = append(table, append([]string{"  " + row[0]}, row[1:5]...))
			}
		}
	}
	writeAligned(b, table, f.width(), 0)
	counts := map[string]int{}
	for _, row := range rows {
		counts[row[0]]++
	}
	var parts []string
	for _, v := range []string{"met", "near", "missed", "unknown"} {
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
}
