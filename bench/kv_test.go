package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/echotest"
	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/uring"
)

// kvHere names the key-value servers that are not in the module of the rivals.
func kvHere() []string {
	var names []string
	for _, v := range kvVariants() {
		if !v.rival {
			names = append(names, v.name)
		}
	}
	return names
}

func TestKeyValueServersHaveACellForEachPromisedLoad(t *testing.T) {
	for args, want := range map[string]struct {
		cells, keys int
		first       string
	}{
		"--storage kv":                            {18, kvKeys, "durable put 100 B 1x1"},
		"--storage=kv --quick":                    {4, kvQuickKeys, "durable put 4 KiB 64x1"},
		"--storage kv --loads 64x64":              {6, 4096, "durable put 100 B 64x64"},
		"--quick --storage kv --sizes 1,4MiB":     {8, kvQuickKeys, "durable put 1 B 64x1"},
		"--storage kv --servers net,ringkv+epoll": {18, kvKeys, "durable put 100 B 1x1"},
	} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		cells := o.cells()
		if len(cells) != want.cells || o.storage.keys != want.keys || cells[0].String() != want.first || o.rounds < report.EnoughRounds || o.quick != (o.total > 0) {
			t.Errorf("%s: %d cells from %v on, %+v", args, len(cells), cells[0], o)
		}
		subject, rival := o.kvQuestion()
		if !strings.HasPrefix(subject, kvRing) || rival != kvNet {
			t.Errorf("%s: %s against %s", args, subject, rival)
		}
	}
}

// Matrix: BE-09
func TestWrongArgumentsOfKeyValueServersAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--servers io_uring":           `--servers: unknown server "io_uring"`,
		"--servers net --base bbolt":   "--base bbolt",
		"--sizes 8MiB":                 "--sizes: values of 8388608 bytes",
		"--sizes none":                 "--sizes: ",
		"--loads 1":                    "--loads: ",
		"--storage-size 1GiB":          "--storage-size: is nothing with --storage kv",
		"--storage-io direct":          "--storage-io: is nothing with --storage kv",
		"--storage-dir /nonexistent/x": "--storage-dir /nonexistent/x",
		"--gc-load":                    "--gc-load: is nothing with --storage kv",
		"--mode secure":                "--mode: is nothing with --storage kv",
		"--tags-build":                 "--tags-build: is nothing with --storage kv",
		"--rounds -1":                  "--rounds -1",
		"--slice 1ns":                  "--slice 1ns",
		"more":                         `"more"`,
	} {
		args := append([]string{"--storage", "kv"}, strings.Fields(args)...)
		var errs strings.Builder
		if status := run(args, nil, io.Discard, &errs); status != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: status %d, %q, want %s", args, status, errs.String(), want)
		}
	}
	var errs strings.Builder
	if status := run([]string{"--storage", "kvs"}, nil, io.Discard, &errs); status != exitUsage || !strings.Contains(errs.String(), `--storage "kvs": must be files or kv`) {
		t.Errorf("status %d, %q", status, errs.String())
	}
}

// Matrix: BE-09
func TestTheHelpOfStorageNamesTheKeyValueServers(t *testing.T) {
	var usage strings.Builder
	if status := run([]string{"--storage", "kv", "--help"}, nil, &usage, io.Discard); status != exitOK {
		t.Errorf("status %d", status)
	}
	_, servers, ok := strings.Cut(usage.String(), "Servers of --storage kv:")
	for _, v := range kvVariants() {
		if !ok || !strings.Contains(servers, "\n  "+v.name+" ") {
			t.Errorf("no server %s in\n%s", v.name, usage.String())
		}
	}
}

// A short run of the servers of this module. The client checks every value that it reads.
// Matrix: BE-07
func TestKeyValueServersAreMeasured(t *testing.T) {
	t.Setenv(asProgram, "1")
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "kv.json")
	args := strings.Fields("--storage kv --sizes 100,64KiB --loads 4x4 --rounds 1 --slice 5ms --servers " + strings.Join(kvHere(), ","))
	var stdout, stderr bytes.Buffer
	if status := run(append(args, "--storage-dir", dir, "--json", path), nil, &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	f := readReport(t, path)
	if len(f.Cells) != 4 || f.KV == nil || f.KV.Keys != kvKeys || f.KV.Dir != dir {
		t.Errorf("%d cells, %+v", len(f.Cells), f.KV)
	}
	for _, c := range f.Cells {
		if len(c.Results) != len(kvHere()) {
			t.Errorf("%v: %d servers", c.Load, len(c.Results))
		}
		for _, r := range c.Results {
			if len(r.Samples) != 1 || r.Median.MessagesPerS <= 0 || r.Median.P99US < r.Median.P50US || r.Syscalls.How == "" {
				t.Errorf("%v: %+v", c.Load, r)
			}
		}
	}
	for _, s := range f.Servers {
		if want := strings.HasPrefix(s.Name, kvRing); want != (s.Settings["backend"] != "") {
			t.Errorf("settings of %s: %v", s.Name, s.Settings)
		}
	}
	var shown bytes.Buffer
	if status := run([]string{"--show", path}, nil, &shown, io.Discard); status != exitOK {
		t.Errorf("--show: status %d", status)
	}
	for _, out := range []string{stdout.String(), shown.String()} {
		for _, want := range []string{"Key-value servers, with files in", "\ndurable put, 100 B, 4 connections, depth 4 (one round)\n", "\nget, 64 KiB, 4 connections", "req/s", "\nnet+each against "} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		for line := range strings.Lines(out) {
			if n := len([]rune(line)) - 1; n > report.DefaultWidth && !strings.Contains(line, dir) {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// kvProcess is a server process.
type kvProcess struct {
	child *proc.Child
	hello child.Hello
	pid   int // of what serves
}

// kvStarter starts key-value servers as --storage kv does.
func kvStarter(t *testing.T) func(v variant, dir string) *kvProcess {
	t.Helper()
	t.Setenv(asProgram, "1")
	flavours, spawner := newFlavours(newProgress(io.Discard)), proc.NewSpawner()
	t.Cleanup(flavours.remove)
	t.Cleanup(spawner.Close)
	return func(v variant, dir string) *kvProcess {
		k := &kvRun{runner: &runner{}, dir: dir}
		program, args, err := k.command(t.Context(), flavours, v, os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		p := &kvProcess{}
		if p.child, err = spawner.Start(context.WithoutCancel(t.Context()), v.name, program, args, io.Discard, &p.hello); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.child.Stop)
		if p.pid = p.hello.PID; p.pid == 0 {
			p.pid = p.child.PID()
		}
		return p
	}
}

func (p *kvProcess) open(t *testing.T, o load.KVOptions, ledger *kv.Ledger) *load.KV {
	t.Helper()
	o.Addr, o.Nonce, o.PID = p.hello.Addr, p.hello.Nonce, p.pid
	k, err := load.OpenKV(t.Context(), o, ledger)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Matrix: BE-07
func TestAKeyValueServerAnswersWhatWasPutAndSaysWhatIsMissing(t *testing.T) {
	start := kvStarter(t)
	for _, v := range kvVariants() {
		if v.rival {
			continue
		}
		p := start(v, t.TempDir())
		to, err := net.ResolveTCPAddr("tcp4", p.hello.Addr)
		if err != nil {
			t.Fatal(err)
		}
		c := echotest.Connect(t, to, p.hello.Nonce, false)
		large := strings.Repeat("large", 100000)
		for i, step := range []struct {
			ask         uint16
			key, data   string
			typ         uint16
			front, want string
		}{
			{kv.TypeGet, "key", "", kv.TypeNotFound, "", ""},
			{kv.TypePut, "key", "value", kv.TypeDone, "", ""},
			{kv.TypeGet, "key", "", kv.TypeDone, "", "value"},
			{kv.TypePut, "key", large, kv.TypeDone, "", ""},
			{kv.TypeGet, "key", "", kv.TypeDone, "", large},
			{kv.TypeGet, "other", "", kv.TypeNotFound, "", ""},
			{kv.TypePut, "", "value", kv.TypeFailed, "a key of 0 bytes", ""},
			{kv.TypePut, "key", "", kv.TypeFailed, "", ""},
		} {
			typ, front, data := c.Ask(t, step.ask, step.key, step.data)
			if typ != step.typ || !strings.HasPrefix(front, step.front) || data != step.want {
				t.Errorf("%s, step %d: type %d, %q, %d bytes", v.name, i, typ, front, len(data))
			}
		}
	}
}

// Whatever is acknowledged when the process is killed is there when it starts again. (What a
// power cut does cmd/ringkv simulates.)
// Matrix: BE-08
func TestADurablePutSurvivesAKill(t *testing.T) {
	const keys = 256
	start := kvStarter(t)
	o := load.KVOptions{Options: load.Options{Conns: 4, Depth: 4, Size: 1000}, Work: kv.Options{Put: true, Keys: keys}}
	slice := load.Slice{Warm: time.Millisecond, Window: 20 * time.Millisecond, WindowMax: 20 * time.Second}
	for _, v := range kvVariants() {
		if v.rival {
			continue
		}
		dir, ledger := t.TempDir(), kv.NewLedger(keys)
		first := start(v, dir)
		k := first.open(t, o, ledger)
		if _, err := k.Run(slice); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		k.Close()
		first.child.Stop()
		k = start(v, dir).open(t, o, ledger)
		if err := k.Verify(); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
		k.Close()
	}
}

func TestWhatRingKVSaysWhenItStartsIsUnderstood(t *testing.T) {
	var r ringKV
	if err := r.parse("listening v2:127.0.0.1:7777/5, cores 1, backend epoll\n"); err != nil || r.Addr().String() != "127.0.0.1:7777" || r.Nonce() != 5 || r.backend != string(uring.Epoll) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, line := range []string{"", "listening", "listening here, cores 1, backend epoll", "usage: ringkv"} {
		if err := r.parse(line); err == nil {
			t.Errorf("%q is understood", line)
		}
	}
	if _, err := startRingKV("/nonexistent/ringkv", t.TempDir(), "auto"); err == nil {
		t.Error("a program that is not there starts")
	}
	if !slices.Contains(kvHere(), "ringkv+epoll") {
		t.Error("ringkv over epoll is not compared")
	}
}
