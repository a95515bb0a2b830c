package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/original"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == child.Command {
		os.Exit(child.Main(os.Args[2:], func(s child.Spec) error { return runChild(s, os.Stdin, os.Stdout) }, os.Stderr))
	}
	cli.Main(func(ctx context.Context, args []string) int { return run(ctx, args, os.Stdout, os.Stderr) })
}

// run is the benchmark itself; it returns its exit status. It ends early when ctx does.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchGoTool(ctx, cancel)
	stdout = cli.NewOutput(stdout)
	return cli.Run(ctx, command(args, func(ctx context.Context, opt *options) error {
		return withPictures(ctx, opt, stderr, func() error {
			if opt.show != "" {
				return show(opt.show, stdout)
			}
			return measure(ctx, *opt, stdout, stderr)
		})
	}), stdout, stderr, args)
}

// watchGoTool cancels when the go tool that runs this program ends: "go run"
// does not pass on the signals that end it, and the user means both.
func watchGoTool(ctx context.Context, cancel context.CancelCauseFunc) {
	parent := os.Getppid()
	exe, err := os.Readlink("/proc/" + strconv.Itoa(parent) + "/exe")
	if err != nil || filepath.Base(exe) != "go" {
		return
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if os.Getppid() != parent {
				cancel(errors.New("the go command that started this was ended"))
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// runChild is the whole life of a helper process.
func runChild(s child.Spec, stdin io.Reader, stdout io.Writer) error {
	if s.Client || s.Original != "" {
		runtime.LockOSThread() // a client's loop is one thread, and the programs of Ceph end with this thread
	}
	var start func() (child.Server, error)
	room := int64(0)
	switch {
	case s.Client:
		return child.ServeClient(func(ctx context.Context, o load.Options) (child.Load, error) {
			switch {
			case s.Original != "":
				return original.OpenClient(ctx, s.Original, o)
			case o.Kind != 0:
				return load.OpenStorage(ctx, o)
			}
			return load.Open(ctx, o)
		}, stdin, stdout)
	case s.Original != "":
		start = func() (child.Server, error) { return original.StartServer(s.Original, s.Msgr1) }
	case s.File != nil:
		v, err := find(storageVariants(), s.Name)
		if err != nil {
			return err
		}
		start = func() (child.Server, error) { return v.storage(*s.File) }
	default:
		v, err := find(variants(), s.Name)
		if err != nil {
			return err
		}
		v.config.Secure, v.config.Cores = s.Secure, s.Cores
		room = v.config.Room
		start = func() (child.Server, error) { return v.start(v.config) }
	}
	return child.ServeServer(s.Name, room, start, stdin, stdout)
}
