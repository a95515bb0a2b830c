package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// Storage is what servers did that read and durably overwrite blocks of one file.
type Storage struct {
	Dir        string        `json:"dir"` // where the file is
	FileSystem string        `json:"file_system"`
	Size       int64         `json:"size"` // of the file, in bytes
	Servers    []Server      `json:"servers"`
	Cells      []StorageCell `json:"cells"`
}

// What a StorageCell does, and how.
const (
	StorageRead    = "read"
	StorageWrite   = "durable write"
	StorageNetwork = "network only" // answered without the file, whose disk is idle or busy
	StorageGroup   = "group commit" // durable writes that share syncs, or do not

	StorageDirect   = "direct"
	StorageBuffered = "buffered" // writes
	StorageCached   = "cached"   // reads through the page cache, which has all of it
	StorageUncached = "uncached" // reads through the page cache, which begins each slice empty
)

// The results of cells that compare one server with itself.
const (
	ResultIdle    = "idle"
	ResultBusy    = "busy"
	ResultAlone   = "one by one" // writes with a sync of their own, one after the other
	ResultEach    = "one each"   // writes that ask for a sync of their own, all at once
	ResultGrouped = "grouped"    // writes that share syncs
)

// StorageCell is one kind of load and what it did to each server. A cell of StorageNetwork
// has one server, and a cell of StorageGroup too: its results are named by what differs.
type StorageCell struct {
	What    string          `json:"what"`
	How     string          `json:"how"`
	Load    Load            `json:"load"` // without payload in a cell of StorageNetwork
	Base    string          `json:"base"` // what the ratios are relative to
	Results []StorageResult `json:"results"`
	Fio     *Fio            `json:"fio,omitempty"`
}

// StorageResult is what one cell did to one server.
type StorageResult struct {
	Result
	// Allocs are heap allocations of the server per request, one figure per counted slice.
	Allocs       []float64 `json:"allocs_per_request,omitempty"`
	AllocsMedian float64   `json:"allocs_median"`
	// Flushes of the disk per request, of a cell of StorageGroup, one figure per round; none
	// where nobody counts them. They are of everybody who uses that disk.
	Flushes       []float64 `json:"flushes_per_request,omitempty"`
	FlushesMedian float64   `json:"flushes_median,omitempty"`
	// Procs is the GOMAXPROCS that was found to be the best, and Tried what was found with
	// each, in requests/s; 0: it was not looked for.
	Procs int             `json:"gomaxprocs,omitempty"`
	Tried map[int]float64 `json:"tried,omitempty"`
}

// Fio is what the program fio did to the same file with as many requests under way, without
// a network.
type Fio struct {
	PerS  float64 `json:"per_s"`
	P50US float64 `json:"p50_us"`
	P99US float64 `json:"p99_us"`
	CPUUS float64 `json:"cpu_us_per_request"`
}

// Compute fills in the medians and ratios.
func (c *StorageCell) Compute() {
	plain := Cell{Load: c.Load, Results: c.plain()}
	plain.Compute(c.Base)
	for i := range c.Results {
		c.Results[i].Result = plain.Results[i]
		c.Results[i].AllocsMedian = Median(c.Results[i].Allocs)
		c.Results[i].FlushesMedian = Median(c.Results[i].Flushes)
	}
}

// plain is what any cell has.
func (c *StorageCell) plain() []Result {
	list := make([]Result, len(c.Results))
	for i := range c.Results {
		list[i] = c.Results[i].Result
	}
	return list
}

// Title says what the cell does.
func (c *StorageCell) Title() string {
	load := fmt.Sprintf("%s, depth %d", connections(c.Load.Conns), c.Load.Depth)
	if c.Load.Size > 0 {
		load = c.Load.Title()
	}
	return fmt.Sprintf("%s, %s: %s", c.What, c.How, load)
}

// WriteStorageHead writes what is measured, and where.
func (f *File) WriteStorageHead(w io.Writer) error { return write(w, f.writeStorageHead) }

func (f *File) writeStorageHead(b *bytes.Buffer) {
	s := f.Storage
	writeText(b, fmt.Sprintf("Storage: a file of %s in %s (%s). Requests take random places of it; every answer is checked, and writes are read back.",
		quantity.Bytes(s.Size), s.Dir, s.FileSystem), f.width())
	for _, one := range s.Servers {
		writeText(b, fmt.Sprintf("  %s: %s", one.Name, one.About), f.width())
	}
}

// WriteStorageCell writes the table of one cell.
func (f *File) WriteStorageCell(w io.Writer, c *StorageCell) error {
	return write(w, func(b *bytes.Buffer) { f.writeStorageCell(b, c) })
}

func (f *File) writeStorageCell(b *bytes.Buffer, c *StorageCell) {
	load := c.Load
	load.What = c.What
	heads := load.columns(c.Base)
	ratios := len(heads) - ratioColumns
	extra, of := "allocs", (*StorageResult).allocs
	if c.What == StorageGroup { // there is no room for both
		extra, of = "flushes", (*StorageResult).flushes
	}
	rows := [][]string{slices.Insert(heads, ratios, extra)}
	var tried []string
	for _, r := range c.Results {
		row := r.row(c.Base)
		if len(row) > ratios {
			row = slices.Insert(row, ratios, of(&r))
		}
		rows = append(rows, row)
		if r.Procs > 0 {
			tried = append(tried, fmt.Sprintf("%s: GOMAXPROCS %d is the best of %s", r.Server, r.Procs, r.procs()))
		}
	}
	if x := c.Fio; x != nil {
		rows = append(rows, []string{
			"(fio)", quantity.Count(x.PerS), quantity.Count(x.PerS * float64(c.Load.Size) / 1e6), quantity.Micros(x.P50US), quantity.Micros(x.P99US), "-",
			quantity.Micros(x.CPUUS), "-", "-", "-", "-", "-", "-",
		})
	}
	f.writeRows(b, c.Title(), c.plain(), rows)
	if len(tried) > 0 {
		writeText(b, strings.Join(tried, "; ")+".", f.width())
	}
}

func (r *StorageResult) allocs() string {
	if len(r.Allocs) == 0 {
		return "n/a"
	}
	return strconv.FormatFloat(r.AllocsMedian, 'f', 2, 64)
}

func (r *StorageResult) flushes() string {
	if len(r.Flushes) == 0 {
		return "-"
	}
	return strconv.FormatFloat(r.FlushesMedian, 'f', 3, 64)
}

// procs lists what was tried.
func (r *StorageResult) procs() string {
	var all []int
	for n := range r.Tried {
		all = append(all, n)
	}
	slices.Sort(all)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}

// WriteStorageSummary writes which aims are met, and what could not be done.
func (f *File) WriteStorageSummary(w io.Writer) error {
	return write(w, f.writeAims, f.writeNotes)
}

func (f *File) writeStorage(b *bytes.Buffer) {
	if f.Storage == nil {
		return
	}
	f.writeStorageHead(b)
	for i := range f.Storage.Cells {
		f.writeStorageCell(b, &f.Storage.Cells[i])
	}
	f.writeAims(b)
}
