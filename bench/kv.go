package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// ringkvProgram is where the program is that --storage kv is about.
const ringkvProgram = "cmd/ringkv"

// kvRun measures all cells of --storage kv.
type kvRun struct {
	*runner
	dir string // of all servers
}

// measureKV compares key-value servers.
func measureKV(ctx context.Context, opt options, stdout, stderr io.Writer) error {
	k := &kvRun{runner: newRunner(opt, stderr)}
	defer k.stop()
	k.opening = k.openingKV
	f := &k.file
	f.Width = columns(stdout)
	f.KV = &report.KV{Dir: opt.storage.dir, FileSystem: fileSystem(opt.storage.dir), Keys: opt.storage.keys}
	f.Subject, f.Rival = opt.kvQuestion()
	if err := k.start(ctx); err != nil {
		return err
	}
	k.plan = newPlan(opt, time.Now) // what had to be built may have taken long
	// A server that waits for its disk may take long until it answers at all.
	k.plan.slice.WindowMax = opt.slice + extendMax
	if err := f.WriteHead(stdout); err != nil {
		return err
	}
	failure := k.measureCells(ctx, stdout)
	k.stop()
	if len(f.Cells) > 0 {
		if err := f.WriteSummary(stdout); err != nil {
			return err
		}
	}
	return errors.Join(failure, k.save())
}

// start builds what is another program, and starts all processes.
func (k *kvRun) start(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if k.counter, k.why = openCounter(); k.why != nil {
		k.note("system calls are not counted: %v", k.why)
	}
	if k.dir, err = os.MkdirTemp(k.opt.storage.dir, "ringmsgr-bench-kv-"); err != nil {
		return fmt.Errorf("--storage-dir: %w", err)
	}
	flavours := newFlavours(k.progress)
	defer flavours.remove()
	k.spawner = proc.NewSpawner()
	var hello struct{}
	if k.client, err = k.spawner.Start(ctx, "client", exe, []string{child.Command, "kv-client"}, k.stderr, &hello); err != nil {
		return err
	}
	for _, v := range k.opt.servers {
		t := &target{variant: v}
		program, args, err := k.command(ctx, flavours, v, exe)
		if err != nil {
			return err
		}
		k.progress.say("starting server %s", v.name)
		if t.child, err = k.spawner.Start(ctx, v.name, program, args, k.stderr, &t.hello); err != nil {
			return err
		}
		if t.pid = t.hello.PID; t.pid == 0 {
			t.pid = t.child.PID()
		}
		k.targets = append(k.targets, t)
		k.file.Servers = append(k.file.Servers, report.Server{Name: v.name, About: v.about, Settings: t.hello.Settings})
		if v.own {
			if t.client, err = k.spawner.Start(ctx, "client of "+v.name, program, []string{child.Command, "kv-client"}, k.stderr, &hello); err != nil {
				return err
			}
		}
	}
	return nil
}

// command is how a server is started, in a directory of its own.
func (k *kvRun) command(ctx context.Context, f *flavours, v variant, exe string) (program string, args []string, err error) {
	if program, err = k.program(ctx, f, v, exe); err != nil {
		return "", nil, err
	}
	dir := filepath.Join(k.dir, v.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	args = []string{child.Command, "kv-server", v.name, dir}
	if v.config.Backend == "" {
		return program, args, nil
	}
	ringkv, err := f.module(ctx, ringkvProgram)
	if err != nil {
		return "", nil, fmt.Errorf("server %s: %w", v.name, err)
	}
	return program, append(args, ringkv, v.config.Backend), nil
}

// openingKV asks a client to connect to a server, and to fill it if that was not done for
// values of this size.
func (k *kvRun) openingKV(t *target, l report.Load) any {
	o := load.KVOptions{
		Options: load.Options{Addr: t.hello.Addr, Nonce: t.hello.Nonce, PID: t.pid, Conns: l.Conns, Depth: l.Depth, Size: l.Size},
		Work:    kv.Options{Put: l.What == report.KVPut, Keys: k.opt.storage.keys},
	}
	return child.Request[load.KVOptions]{Server: t.name, Open: &o}
}

// stop ends all processes and removes their files. It may be called twice.
func (k *kvRun) stop() {
	k.runner.stop()
	if k.dir != "" {
		_ = os.RemoveAll(k.dir)
		k.dir = ""
	}
}
