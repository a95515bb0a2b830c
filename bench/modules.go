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

// library is the module that the benchmark measures.
const library = "github.com/ringmsgr/ringmsgr"

// rivalModule has the servers that the library does not depend on.
const rivalModule = "bench/rivals"

// modules builds the programs of the modules below the library's, in a temporary directory.
type modules struct {
	dir      string
	progress *progress
}

// build returns the program of a module, named by its directory in the library's. It needs the
// go command, the source of the library around the working directory, and the dependencies of
// the module.
func (f *modules) build(ctx context.Context, dir string) (string, error) {
	goTool, err := exec.LookPath("go")
	if err == nil && f.dir == "" {
		f.dir, err = os.MkdirTemp("", "ringmsgr-bench-")
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(f.dir, filepath.Base(dir))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	command := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, goTool, args...).CombinedOutput()
		text := strings.TrimSpace(string(out))
		if err != nil {
			return "", fmt.Errorf("go %s: %w: %s", args[0], err, text)
		}
		return text, nil
	}
	root, err := command("list", "-m", "-f", "{{.Dir}}", library)
	if err != nil {
		return "", fmt.Errorf("find the source of %s from the working directory: %w", library, err)
	}
	f.progress.say("building %s", dir)
	if _, err := command("build", "-C", filepath.Join(root, dir), "-o", path, "."); err != nil {
		return "", fmt.Errorf("build %s: %w", dir, err)
	}
	return path, nil
}

// remove deletes the programs. Running programs keep running.
func (f *modules) remove() {
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}

// plotModule draws. Its dependencies make it a module of its own.
const plotModule = "bench/plot"

// withPictures measures, or shows, and draws the results with --plot. The program that draws is
// built first, so that a long run does not end without its pictures.
func withPictures(ctx context.Context, opt *options, stderr io.Writer, measure func() error) error {
	if opt.plot == "" {
		return measure()
	}
	f := &modules{progress: &progress{w: stderr}}
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
