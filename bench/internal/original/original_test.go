package original

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/uring"
)

// program writes a script that stands for a program of Ceph.
func program(t *testing.T, dir, name, script string) string {
	t.Helper()
	clitest.Must(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, name)
	clitest.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	return path
}

func TestReleasesAreFoundOnceAndWhatIsMissingIsSaid(t *testing.T) {
	first, again, other, half := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	if _, err := Find(first); !errors.Is(err, errTool) || !strings.Contains(err.Error(), serverProgram) {
		t.Errorf("nothing is there: %v", err)
	}
	for dir, version := range map[string]string{first: "18.2.7", again: "18.2.7", other: "20.2.4"} {
		program(t, dir, clientProgram, "echo 'ceph version "+version+" (abc) name (stable)'")
		program(t, dir, serverProgram, "")
	}
	program(t, half, clientProgram, "echo 'ceph version 1.2.3'")
	found, err := Find(strings.Join([]string{half, first, again, other}, ":"))
	if want := []Release{{"18.2.7", first}, {"20.2.4", other}}; err != nil || !slices.Equal(found, want) {
		t.Errorf("%+v, %v", found, err)
	}
	program(t, half, serverProgram, "")
	program(t, half, clientProgram, "echo nothing")
	if _, err := Find(half); !errors.Is(err, errTool) || !strings.Contains(err.Error(), half) {
		t.Errorf("no version: %v", err)
	}
}

func TestOnlyAResultIsAResult(t *testing.T) {
	ops, took, err := parse([]byte(" using async\n Total op 20000 run time 3213611us.\n"))
	if err != nil || ops != 20000 || took != 3213611*time.Microsecond {
		t.Errorf("%d in %v, %v", ops, took, err)
	}
	for _, out := range []string{"", "Total op", "Total op 0 run time 5us", "Total op 5 run time 0us", "Total op 99999999999999999999 run time 5us"} {
		if _, _, err := parse([]byte(out)); !errors.Is(err, errTool) {
			t.Errorf("%q: %v", out, err)
		}
	}
}

// A client that hangs at its first start and aborts at its second is started again, and that
// is counted. It uses the builtins of a shell alone: there may be no other programs.
func TestAClientThatHangsOrAbortsIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	tool := program(t, dir, clientProgram, `[ -e `+dir+`/hung ] || { : >`+dir+`/hung; kill -STOP $$; }
[ -e `+dir+`/aborted ] || { : >`+dir+`/aborted; kill -ABRT $$; }
echo " Total op $(($2 * $4)) run time $(($4 * 100))us."`)
	c := &theirClient{program: tool, opt: load.Options{Addr: "127.0.0.1:1", PID: clitest.Sleeper(t), Conns: 4, Depth: 16, Size: 64}}
	r, err := c.run(100)
	if err != nil || c.restarts != 2 || r.ops != 400 || r.took != 10*time.Millisecond {
		t.Errorf("%+v, %d restarts, %v", r, c.restarts, err)
	}
	if res, err := c.Run(load.Slice{}); err != nil || res.Restarts != 2 || c.restarts != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	c.program = program(t, dir, "broken", "echo what; exit 3")
	if _, err := c.run(1); !errors.Is(err, errTool) || !strings.Contains(err.Error(), "what") {
		t.Errorf("a client that fails: %v", err)
	}
}

// A slice is the difference to the run that only fills the queue.
func TestTheStartOfAClientIsNotMeasured(t *testing.T) {
	tool := program(t, t.TempDir(), clientProgram, `echo " Total op $(($2 * $4)) run time $(($4 * 100))us."`)
	c, err := openTheirs(tool, load.Options{Addr: "127.0.0.1:1", PID: os.Getpid(), Conns: 2, Depth: 1, Size: 64})
	clitest.Must(t, err)
	res, err := c.Run(load.Slice{Window: 100 * time.Millisecond})
	if each := res.Bytes / 2; err != nil || each < 990 || each > 1010 || (res.Window-time.Duration(each)*100*time.Microsecond).Abs() > time.Microsecond {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err = c.Run(load.Slice{}); err != nil || res.Total != 4 || res.Bytes != 0 {
		t.Errorf("without a window: %+v, %v", res, err)
	}
}

// Our client and our server, each as the bench starts it, understand each other in both protocols.
func TestOurClientMeasuresOurServer(t *testing.T) {
	for _, msgr1 := range []bool{false, true} {
		s, err := StartServer(string(uring.Epoll), msgr1)
		clitest.Must(t, err)
		o := load.Options{Addr: s.Addr().String(), Conns: 2, Depth: 3, Size: 100_000, Msgr1: msgr1}
		c, err := OpenClient(t.Context(), string(uring.Epoll), o)
		clitest.Must(t, err)
		for counted, runs := 0, 0; counted < 2; runs++ { // on a slow machine a window may pass without an answer
			res, err := c.Run(load.Slice{Warm: time.Millisecond, WarmMax: time.Minute, Window: 10 * time.Millisecond, WindowMax: time.Minute})
			if err != nil || !res.Steady || res.Total < 8 || runs == 1000 {
				t.Fatalf("msgr1 %v: %+v, %v", msgr1, res, err)
			}
			if res.Bytes > 0 {
				counted++
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Run(load.Slice{Window: time.Hour}); err == nil {
			t.Error("a server that is gone: no error")
		}
		c.Close()
	}
}

// Both sizes are those of 18.2.7.
func TestAReplyIsAboutTheGroupOfItsRequest(t *testing.T) {
	room := func() *control.Message {
		return control.NewMessage(typeOpReply, nil, bytes.Repeat([]byte{0xee}, replyMax))
	}
	op, reply := newOp(make([]byte, 64)), room()
	err := putReply(reply, op)
	if err != nil || len(op.Front) != 220-len("-name") || len(reply.Front) != 102 || string(reply.Front[4:21]) != string(op.Front[6:23]) || bytes.Contains(reply.Front, []byte{0xee}) {
		t.Errorf("%d and %+v, %v", len(op.Front), reply, err)
	}
	op.Front = op.Front[:30]
	if err := putReply(room(), op); !errors.Is(err, errMessage) {
		t.Errorf("a request that ends: %v", err)
	}
	if err := putReply(room(), control.NewMessage(1, nil, nil)); !errors.Is(err, errMessage) {
		t.Errorf("another message: %v", err)
	}
}
