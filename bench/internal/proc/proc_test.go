package proc

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is its own child: these are the things it can be.
const roleVar = "BENCH_PROC_TEST_ROLE"

func init() {
	if os.Getenv(roleVar) == "main thread" {
		runtime.LockOSThread() // the main goroutine keeps the main thread
	}
}

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "echo":
		err := Serve(os.Stdin, os.Stdout, "ready", func(req json.RawMessage) (any, error) {
			var s string
			if err := json.Unmarshal(req, &s); err != nil {
				return nil, err
			}
			switch s {
			case "die":
				os.Exit(3)
			case "hang":
				hang()
			case "refuse":
				return nil, errors.New("refused for a reason")
			}
			return strings.ToUpper(s), nil
		}, func() { os.Exit(0) })
		if err != nil {
			os.Exit(4)
		}
	case "deaf": // neither reads its input nor ends by itself
		_ = write(os.Stdout, "ready", nil)
		hang()
	case "main thread":
		os.Exit(spawnOnTheMainThread())
	case "fails":
		Fail(os.Stdout, errors.New("no such address"))
	}
}

// hang waits until the process is killed. Somebody who may be sent a signal is
// not deadlocked, as the runtime sees it.
func hang() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
}

func start(t *testing.T, role string) (*Child, error) {
	t.Helper()
	t.Setenv(roleVar, role)
	s := NewSpawner()
	t.Cleanup(s.Close)
	var hello string
	c, err := s.Start(t.Context(), role, os.Args[0], nil, os.Stderr, &hello)
	if err == nil {
		t.Cleanup(c.Stop)
		if hello != "ready" {
			t.Fatalf("hello %q", hello)
		}
	}
	return c, err
}

func TestCallReturnsTheAnswer(t *testing.T) {
	c, err := start(t, "echo")
	if err != nil {
		t.Fatal(err)
	}
	var out string
	if err := c.Call(t.Context(), "abc", &out); err != nil || out != "ABC" {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestCallReturnsTheChildsErrorWithItsName(t *testing.T) {
	c, err := start(t, "echo")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Call(t.Context(), "refuse", nil)
	if err == nil || err.Error() != "echo: refused for a reason" {
		t.Fatalf("error %v", err)
	}
	if err := c.Call(t.Context(), "again", nil); err != nil {
		t.Fatalf("a refusal ended the child: %v", err)
	}
}

func TestTheDeathOfAChildIsReportedWithItsExitStatus(t *testing.T) {
	c, err := start(t, "echo")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Call(t.Context(), "die", nil)
	if !errors.Is(err, ErrChildEnded) || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("error %v", err)
	}
}

func TestAnErrorInPlaceOfTheHelloFailsTheStart(t *testing.T) {
	_, err := start(t, "fails")
	if err == nil || !strings.Contains(err.Error(), "no such address") {
		t.Fatalf("error %v", err)
	}
}

func TestACallThatOutlastsItsContextKillsTheChild(t *testing.T) {
	c, err := start(t, "echo")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "hang", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	<-c.exited
}

func TestStopEndsAChildThatDoesNotListen(t *testing.T) {
	c, err := start(t, "deaf")
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	select {
	case <-c.exited:
	default:
		t.Fatal("still running after Stop")
	}
}

func TestAChildDiesWithTheThreadThatStartedIt(t *testing.T) {
	t.Setenv(roleVar, "deaf")
	s := NewSpawner()
	var hello string
	c, err := s.Start(t.Context(), "deaf", os.Args[0], nil, os.Stderr, &hello)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	<-c.exited
	if state := c.cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal(); state != unix.SIGKILL {
		t.Fatalf("ended by %v", c.cmd.ProcessState)
	}
}

// spawnOnTheMainThread is the life of a process whose spawner begins on the main
// thread: 0 if its child dies with the spawner all the same.
func spawnOnTheMainThread() int {
	s := &Spawner{starts: make(chan func()), closed: make(chan struct{})}
	died := make(chan error, 1)
	go func() {
		if err := os.Setenv(roleVar, "deaf"); err != nil {
			died <- err
			return
		}
		var hello string
		c, err := s.Start(context.Background(), "deaf", os.Args[0], nil, os.Stderr, &hello)
		s.Close()
		if err == nil {
			<-c.exited
		}
		died <- err
	}()
	s.loop()
	if <-died != nil {
		return 1
	}
	return 0
}

func TestAChildDiesWithASpawnerThatBeganOnTheMainThread(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=main thread")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
