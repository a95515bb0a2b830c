package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// plotModule draws. Its dependencies make it a module of its own.
const plotModule = "bench/plot"

// withPictures measures, or shows, and draws the results with --plot. The program that draws is
// built first, so that a long run does not end without its pictures.
func withPictures(ctx context.Context, opt *options, stderr io.Writer, measure func() error) error {
	if opt.plot == "" {
		return measure()
	}
	f := newModules(&progress{w: stderr})
	defer f.remove()
	program, err := f.build(ctx, plotModule)
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	if err := os.MkdirAll(opt.plot, 0o755); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	if opt.json == "" {
		opt.json = filepath.Join(f.dir, "results.json")
	}
	if err := measure(); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "--dir", opt.plot, cmp.Or(opt.show, opt.json)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("--plot %s: %w: %s", opt.plot, err, strings.TrimSpace(string(out)))
	}
	return nil
}
