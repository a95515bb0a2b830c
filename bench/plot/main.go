// Command plot draws the results of the benchmark as SVG: the CPU time of the server for
// each message and its system calls over the size of the payload, and how latencies are
// distributed in one load.
//
//	go run ./bench --plot DIR                       # measures, and has this program draw
//	go run ./bench --show FILE.json --plot DIR      # draws once more
//	cd bench/plot && go run . --dir DIR FILE.json   # the same
//
// Its dependencies make it a module of its own.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns its exit status.
func run(args []string, stdout, stderr io.Writer) int {
	stdout = cli.NewOutput(stdout)
	c := &cobra.Command{Use: "plot FILE.json", Short: "draws what \"go run ./bench --json FILE.json\" has measured"}
	dir := c.Flags().String("dir", ".", "`DIRECTORY` to write to: cpu.svg, syscalls.svg and latency.svg")
	c.RunE = func(_ *cobra.Command, args []string) error { return drawAll(args[0], *dir, stdout) }
	return cli.Run(context.Background(), c, stdout, stderr, args)
}

// drawAll draws the pictures of a file into a directory.
func drawAll(file, dir string, stdout io.Writer) error {
	f, err := report.Read(file)
	if err != nil {
		return err
	}
	if len(f.Cells) == 0 {
		return fmt.Errorf("%s: %w", file, errNothing)
	}
	d := drawing{f}
	load, cell := d.choose()
	for _, picture := range []struct {
		name     string
		optional bool // a run may have no results for it
		draw     func(string) (io.WriterTo, error)
		of       string
	}{
		{"cpu.svg", false, d.cpu, load},
		{"syscalls.svg", true, d.syscalls, load}, // not every server can be counted
		{"latency.svg", true, d.latency, cell},
	} {
		svg, err := picture.draw(picture.of)
		if errors.Is(err, errNothing) && picture.optional {
			fmt.Fprintf(stdout, "%s is not drawn: %v\n", picture.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", picture.name, err)
		}
		if err := write(filepath.Join(dir, picture.name), svg); err != nil {
			return fmt.Errorf("--dir %s: %w", dir, err)
		}
	}
	return nil
}

func write(path string, picture io.WriterTo) error {
	var b bytes.Buffer
	if _, err := picture.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
