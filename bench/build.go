package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// flavours builds this program with other build tags, in a temporary
// directory.
type flavours struct {
	dir      string
	progress *progress
	built    map[string]string // by tags
}

// newFlavours builds nothing yet.
func newFlavours(p *progress) *flavours { return &flavours{progress: p, built: map[string]string{}} }

// build returns the program with tags. The go command and the source of the
// module, in the working directory, are needed.
func (f *flavours) build(ctx context.Context, tags string) (string, error) {
	if path, ok := f.built[tags]; ok {
		return path, nil
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "" {
		return "", fmt.Errorf("this program does not know its import path")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		return "", err
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "ringmsgr-bench-"); err != nil {
			return "", err
		}
	}
	path := filepath.Join(f.dir, "bench-"+strings.ReplaceAll(tags, ",", "-"))
	f.progress.say("building the flavour -tags %s", tags)
	out, err := exec.CommandContext(ctx, goTool, "build", "-tags", tags, "-o", path, info.Path).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build -tags %s %s: %w: %s", tags, info.Path, err, strings.TrimSpace(string(out)))
	}
	f.built[tags] = path
	return path, nil
}

// remove deletes what was built. Running programs keep running.
func (f *flavours) remove() {
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}
