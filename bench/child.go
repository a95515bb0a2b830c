package main

import (
	"context"
	"io"
	"runtime"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/original"
)

// runChild is the whole life of a helper process.
func runChild(s child.Spec, stdin io.Reader, stdout io.Writer) error {
	if s.Client || s.Original != "" {
		runtime.LockOSThread() // a client's loop is one thread, and the programs of Ceph end with this thread
	}
	var start func() (child.Server, error)
	switch {
	case s.Client && s.Original != "":
		open := func(ctx context.Context, o load.Options) (child.Load, error) {
			return original.OpenClient(ctx, s.Original, o)
		}
		return child.ServeClient(open, stdin, stdout)
	case s.Client && s.File != nil:
		return child.ServeClient(load.OpenStorage, stdin, stdout)
	case s.Client:
		return child.ServeClient(load.Open, stdin, stdout)
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
		start = func() (child.Server, error) { return v.start(v.config) }
	}
	return child.ServeServer(s.Name, start, stdin, stdout)
}
