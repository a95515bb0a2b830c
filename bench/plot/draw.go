package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// The size of a picture.
const (
	width  = 7 * vg.Inch
	height = 4 * vg.Inch
)

// The pictures, if the run has their figures.
const (
	usualLoad = "64x1"
	usualSize = "4 KiB"
)

// colors is the number of servers that differ by color alone.
const colors = 7

// errNothing says that a picture would be empty.
var errNothing = errors.New("the file has no results for this picture")

// drawing makes pictures of the results of a run.
type drawing struct {
	file *report.File
}

// cpu shows the server's CPU time of a message, over its size.
func (d *drawing) cpu(load string) (io.WriterTo, error) {
	return d.overSize(load, "CPU of the server for each message", "microseconds", func(r *report.Result) (float64, bool) {
		y := d.file.Cells[0].Load.CPU(r.Median)
		return y, y > 0
	})
}

// syscalls shows the server's system calls for a message, over its size.
func (d *drawing) syscalls(load string) (io.WriterTo, error) {
	return d.overSize(load, "System calls of the server for each message", "system calls", func(r *report.Result) (float64, bool) {
		return r.Syscalls.Median, r.Syscalls.Known() && r.Syscalls.Median > 0
	})
}

// overSize draws one figure of all servers for one load, both axes logarithmic.
func (d *drawing) overSize(load, title, unit string, of func(*report.Result) (float64, bool)) (io.WriterTo, error) {
	lines := make(map[string]plotter.XYs)
	var ticks plot.ConstantTicks
	for i := range d.file.Cells {
		c := &d.file.Cells[i]
		if shape(c.Load) != load || c.Load.What != d.file.Cells[0].Load.What {
			continue
		}
		size := float64(c.Load.Size)
		ticks = append(ticks, plot.Tick{Value: size, Label: cli.Bytes(int64(c.Load.Size))})
		for j := range c.Results {
			r := &c.Results[j]
			if y, ok := of(r); ok {
				lines[r.Server] = append(lines[r.Server], plotter.XY{X: size, Y: y})
			}
		}
	}
	p := d.plot(title+", "+load, "payload", unit)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(oneTwoFive)
	p.Legend.Top, p.Legend.Left = true, true
	return d.add(p, lines)
}

// latency draws which share of the requests of one cell took no longer than a time.
func (d *drawing) latency(cell string) (io.WriterTo, error) {
	lines := make(map[string]plotter.XYs)
	for i := range d.file.Cells {
		c := &d.file.Cells[i]
		if c.Load.String() != cell {
			continue
		}
		for j := range c.Results {
			r := &c.Results[j]
			if r.Latency == nil || r.Latency.Count() == 0 {
				continue
			}
			for q := 0.001; q < 0.9995; q += 0.001 {
				us := float64(r.Latency.Quantile(q)) / float64(time.Microsecond)
				lines[r.Server] = append(lines[r.Server], plotter.XY{X: max(us, 0.001), Y: q})
			}
		}
	}
	p := d.plot("Latency, "+cell, "microseconds, and less", "share of the requests")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(oneTwoFive)
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Left, p.Legend.Top = true, true
	return d.add(p, lines)
}

// choose returns the load and the cell to draw: the usual ones, else the first of the run.
func (d *drawing) choose() (load, cell string) {
	load = shape(d.file.Cells[0].Load)
	if slices.ContainsFunc(d.file.Cells, func(c report.Cell) bool { return shape(c.Load) == usualLoad }) {
		load = usualLoad
	}
	for _, c := range d.file.Cells {
		switch name := c.Load.String(); {
		case name == usualSize+" "+load:
			return load, name
		case cell == "" && shape(c.Load) == load:
			cell = name
		}
	}
	return load, cell
}

// plot is a picture without lines. It says where the figures come from.
func (d *drawing) plot(title, x, y string) *plot.Plot {
	m := d.file.Machine
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = fmt.Sprintf("%s\n%s, %d cores, Linux %s, %s", x, m.CPU, m.Cores, m.Kernel, m.Go)
	p.Y.Label.Text = y
	p.Add(plotter.NewGrid())
	return p
}

// add draws the lines, in the order of the servers, and finishes the picture.
func (d *drawing) add(p *plot.Plot, lines map[string]plotter.XYs) (io.WriterTo, error) {
	drawn := 0
	for i, s := range d.file.Servers {
		if len(lines[s.Name]) == 0 {
			continue
		}
		l, err := plotter.NewLine(lines[s.Name])
		if err != nil {
			return nil, err
		}
		l.Color, l.Dashes, l.Width = plotutil.Color(i), plotutil.Dashes(i/colors), vg.Points(1.5)
		p.Add(l)
		p.Legend.Add(s.Name, l)
		drawn++
	}
	if drawn == 0 {
		return nil, errNothing
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		// A logarithmic axis cannot begin at 0, nor end where it begins.
		if _, ok := axis.Scale.(plot.LogScale); ok {
			axis.Min, axis.Max = axis.Min/1.5, axis.Max*1.5
		}
	}
	return p.WriterTo(width, height, "svg")
}

// oneTwoFive labels 1, 2, 5, 10, 20 and so on.
func oneTwoFive(low, high float64) (ticks []plot.Tick) {
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if v := n * decade; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
			}
		}
	}
	return ticks
}

// shape is a load without its size, for example 64x1, or 1000x1:10 where 10 connections are active.
func shape(l report.Load) string {
	s := fmt.Sprintf("%dx%d", l.Conns, l.Depth)
	if l.Active > 0 {
		s += fmt.Sprintf(":%d", l.Active)
	}
	return s
}
