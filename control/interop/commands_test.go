package interop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// commands calls our program and the real tool for one pool.
type commands struct {
	t      *testing.T
	c      *cluster
	ours   string
	called map[string]bool
}

// run calls our program, which finds everything by ceph.conf.
func (s *commands) run(line string) string {
	s.t.Helper()
	return string(runTool(s.t, s.ours, s.words(line)...))
}

func (s *commands) words(line string) []string {
	words := strings.Fields(line)
	s.called[words[0]] = true
	return append([]string{"--conf", s.c.file("ceph.conf"), "--pool", "data"}, words...)
}

// fails has our program fail with a status.
func (s *commands) fails(status, line, says string) {
	s.t.Helper()
	_, err := tryTool(s.t, s.ours, s.words(line)...)
	wantText(s.t, line, err, "exit status "+status, says)
}

// rados calls the real tool.
func (s *commands) rados(line string) string {
	s.t.Helper()
	return string(s.c.rados(strings.Fields(line)...))
}

// same checks that the real tool says that, whatever the order of its lines.
func (s *commands) same(line string, want ...string) {
	s.t.Helper()
	got := strings.FieldsFunc(s.rados(line), func(c rune) bool { return c == '\n' })
	if slices.Sort(got); !slices.Equal(got, want) {
		s.t.Errorf("rados %s: %q, want %q", line, got, want)
	}
}

// says checks that the real tool says all of that.
func (s *commands) says(line string, want ...string) {
	s.t.Helper()
	got := s.rados(line)
	for _, text := range want {
		if !strings.Contains(got, text) {
			s.t.Errorf("rados %s: %s\ndoes not say %q", line, got, text)
		}
	}
}

// useCommands has the real tool see the effect of each command of our program.
func useCommands(t *testing.T, c *cluster) {
	s := &commands{t: t, c: c, ours: buildProgram(t, "cephclient"), called: map[string]bool{}}
	in := filepath.Join(t.TempDir(), "in")
	check(t, os.WriteFile(in, []byte("0123456789"), 0o600))
	equal := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}

	equal("lspools", s.run("lspools"), s.rados("lspools"))
	s.run("put a " + in)
	s.run("put a --offset 8 " + in)
	s.run("append a " + in)
	equal("get", s.rados("get a -"), "012345670123456789"+"0123456789")
	s.run("truncate a 12")
	equal("get", s.run("get a --offset 2 -"), "2345670123")
	s.says("stat a", "size 12")
	equal("stat", s.run("stat a")[:14], "{\n  \"size\": 12")
	s.run("put b -N space " + in)
	s.same("ls", "a")
	s.same("-N space ls", "b")
	equal("ls", s.run("ls -N space")+s.run("ls"), "b\na\n")
	if all := s.run("ls --all"); len(all) != len("\ta\nspace\tb\n") || !strings.Contains(all, "space\tb\n") {
		t.Errorf("ls --all: %q", all)
	}

	s.run("xattr a set x 1")
	s.run("xattr a set y 2")
	s.same("listxattr a", "x", "y")
	equal("xattr", s.rados("getxattr a x")+s.run("xattr a get y"), "12")
	s.run("xattr a rm x")
	equal("xattr list", s.run("xattr a list"), "y\n")
	s.same("listxattr a", "y")

	s.run("omap a set k v")
	s.run("omap a set l w")
	s.says("listomapvals a", "k\n", "l\n", "|v|", "|w|")
	equal("omap", s.run("omap a get l")+s.run("omap a list"), "w\"k\" \"v\"\n\"l\" \"w\"\n")
	s.run("omap a rm k")
	s.same("listomapkeys a", "l")
	s.run("omap a clear")
	s.same("listomapkeys a")
	s.fails("1", "omap a get l", "no key")

	s.run("lock a take one cookie --duration 1h")
	s.run("lock a share two left")
	s.run("lock a share two right")
	s.says("lock list a", `"one"`, `"two"`)
	s.says("lock info a one", `"exclusive"`, `"cookie":"cookie"`)
	s.says("lock info a two", `"shared"`, `"left"`, `"right"`)
	s.fails("1", "lock a take one other", "busy")
	s.run("lock a unlock two left")
	if got := s.rados("lock info a two"); strings.Contains(got, `"left"`) || !strings.Contains(got, `"right"`) {
		t.Errorf("unlock left %s", got)
	}
	s.run("lock a break one")
	s.says("lock info a one", `"lockers":[]`)
	s.fails("1", "lock a break one", "nobody has it")
	if got := s.run("lock a list") + s.run("lock a info two"); !strings.HasPrefix(got, "one\ntwo\n") || !strings.Contains(got, `"right"`) {
		t.Errorf("lock: %s", got)
	}

	s.watches()

	s.run("snap create before")
	s.says("lssnap", "before")
	s.run("put a " + in)
	equal("get --snap", s.run("get a --snap before -"), "012345670123")
	s.run("snap rollback before a")
	equal("get", s.rados("get a -"), "012345670123")
	if list := s.run("snap list"); !strings.HasSuffix(list, "\tbefore\n") {
		t.Errorf("snap list: %q", list)
	}
	s.run("snap rm before")
	s.says("lssnap", "0 snaps")

	for _, mode := range []string{"write", "seq", "rand"} {
		var r struct {
			Operations int
			Latency    struct{ P50, Max float64 } `json:"latency_us"`
			Histogram  []struct{ Count int }
		}
		check(t, json.Unmarshal([]byte(s.run("bench "+mode+" --seconds 300ms --size 4KiB --threads 4")), &r))
		for _, b := range r.Histogram {
			r.Operations -= b.Count
		}
		if r.Operations != 0 || len(r.Histogram) == 0 || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P50 {
			t.Errorf("bench %s: %+v", mode, r)
		}
	}
	s.says("stat cephclient-bench-0", "size 4096")
	for _, name := range []string{"c", "d", "cephclient-bench-99999999", "cephclient-bench-mine"} {
		s.run("put " + name + " " + in)
	}
	s.run("bench cleanup") // also of the write before the last, which had another object
	s.same("ls", "a", "c", "cephclient-bench-mine", "d")
	s.run("rm c d cephclient-bench-mine")
	s.same("ls", "a")
	s.fails("1", "rm c a", `"c" of pool data`)
	s.same("ls")

	for _, command := range []string{"status", "df", "monmap", "osdmap"} {
		var v any
		check(t, json.Unmarshal([]byte(s.run(command)), &v))
	}
	s.fails("2", "xattr a dance", "no action")
	s.fails("2", "ls more", "usage:")
	s.run("version")
	s.run("help")
	s.run("completion bash")
	_, help, _ := strings.Cut(s.run("help"), "Available Commands:\n")
	help, _, _ = strings.Cut(help, "\n\n")
	for line := range strings.Lines(help) {
		if name := strings.Fields(line)[0]; !s.called[name] {
			t.Errorf("command %s is not tried", name)
		}
	}
}

// watches has our program and the real tool tell each other.
func (s *commands) watches() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*patience) // with four runs of tools
	defer cancel()
	cmd := exec.CommandContext(ctx, s.ours, s.words("watch a")...)
	cmd.Env = cephEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	check(s.t, err)
	check(s.t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // fails where it has ended
	check(s.t, msgrtest.Until(ctx, func() bool { return strings.Contains(s.rados("listwatchers a"), "watcher=") }))
	lines := bufio.NewScanner(out)
	next := func(who, want string) {
		s.t.Helper()
		if !lines.Scan() || !strings.HasSuffix(lines.Text(), want) {
			s.t.Errorf("of %s came %q, %v %s; want %s", who, lines.Text(), lines.Err(), stderr.String(), want)
		}
	}
	s.rados("notify a theirs")
	next("rados", `theirs"}`) // behind the length of a string
	if answer := s.run("notify a ours"); !strings.HasSuffix(answer, `"answer":""}`+"\n") {
		s.t.Errorf("notify: %q", answer)
	}
	next("cephclient", `"payload":"ours"}`)
	check(s.t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("watch ended with %v %s", err, stderr.String())
	}
	if got := s.rados("listwatchers a"); got != "" {
		s.t.Errorf("still there: %s", got)
	}
}
