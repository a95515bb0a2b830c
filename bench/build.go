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

// library is the module of what is measured.
const library = "github.com/ringmsgr/ringmsgr"

// flavours builds this program with other build tags, and the programs of the modules
// below it, in a temporary directory.
type flavours struct {
	dir      string
	progress *progress
	built    map[string]string // by tags, or by the directory of the module
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
	goTool, err := f.prepare()
	if err != nil {
		return "", err
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

// module returns the program of a module of its own, named by its directory in the
// library's. The go command is needed, the source of the library, of which the working
// directory is a part, and what the module depends on.
func (f *flavours) module(ctx context.Context, dir string) (string, error) {
	if path, ok := f.built[dir]; ok {
		return path, nil
	}
	goTool, err := f.prepare()
	if err != nil {
		return "", err
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
	path := filepath.Join(f.dir, filepath.Base(dir))
	f.progress.say("building %s", dir)
	if _, err := command("build", "-C", filepath.Join(root, dir), "-o", path, "."); err != nil {
		return "", fmt.Errorf("build %s: %w", dir, err)
	}
	f.built[dir] = path
	return path, nil
}

// prepare finds the go command and makes the directory.
func (f *flavours) prepare() (goTool string, err error) {
	if goTool, err = exec.LookPath("go"); err != nil || f.dir != "" {
		return goTool, err
	}
	f.dir, err = os.MkdirTemp("", "ringmsgr-bench-")
	return goTool, err
}

// remove deletes what was built. Running programs keep running.
func (f *flavours) remove() {
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
	}
}
