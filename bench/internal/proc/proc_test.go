package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// The test binary is its own child: these are the things it can be.
const roleVar = "BENCH_PROC_TEST_ROLE"

// Echo is the service of a child.
type Echo struct{}

func (Echo) Hello(_ struct{}, hello *string) error {
	*hello = "ready"
	return nil
}

func (Echo) Upper(s string, out *string) error {
	*out = strings.ToUpper(s)
	return nil
}

func (Echo) Refuse(struct{}, *struct{}) error { return errors.New("refused for a reason") }

func (Echo) Die(struct{}, *struct{}) error {
	os.Exit(3)
	return nil
}

func (Echo) Hang(struct{}, *struct{}) error {
	hang()
	return nil
}

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "echo":
		_ = Serve(os.Stdin, os.Stdout, Echo{})
		os.Exit(4)
	case "deaf": // neither reads its input nor ends by itself
		fmt.Println(`{"id":0,"result":"ready","error":null}`)
		hang()
	case "parent": // ends without a word to its child, which is busy
		_ = os.Setenv(roleVar, "echo") // of the child
		c, err := Start(context.Background(), "echo", os.Args[0], nil, os.Stderr, nil)
		if err != nil {
			os.Exit(5)
		}
		fmt.Println(c.PID())
		_ = c.Call(context.Background(), "Hang", struct{}{}, nil)
	case "fails":
		os.Exit(6)
	}
}

// hang waits until the process is killed. A goroutine that waits for signals is no deadlock for
// the runtime.
func hang() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR2)
	<-never
}

func start(t *testing.T, role string) (*Child, error) {
	t.Helper()
	t.Setenv(roleVar, role)
	var hello string
	c, err := Start(t.Context(), role, os.Args[0], nil, os.Stderr, &hello)
	if err == nil {
		t.Cleanup(c.Stop)
		if hello != "ready" {
			t.Fatalf("hello %q", hello)
		}
	}
	return c, err
}

func TestCallReturnsTheAnswerOrTheChildsErrorWithItsName(t *testing.T) {
	c, err := start(t, "echo")
	clitest.Must(t, err)
	for _, word := range []string{"abc", "again"} { // a refusal does not end the child
		var out string
		if err := c.Call(t.Context(), "Upper", word, &out); err != nil || out != strings.ToUpper(word) {
			t.Fatalf("%q, %v", out, err)
		}
		if err := c.Call(t.Context(), "Refuse", struct{}{}, nil); err == nil || err.Error() != "echo: refused for a reason" {
			t.Fatalf("error %v", err)
		}
	}
}

func TestTheDeathOfAChildIsReportedWithItsExitStatus(t *testing.T) {
	c, err := start(t, "echo")
	clitest.Must(t, err)
	err = c.Call(t.Context(), "Die", struct{}{}, nil)
	if !errors.Is(err, ErrChildEnded) || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("error %v", err)
	}
}

func TestAnEndInPlaceOfTheHelloFailsTheStart(t *testing.T) {
	_, err := start(t, "fails")
	if !errors.Is(err, ErrChildEnded) || !strings.Contains(err.Error(), "exit status 6") {
		t.Fatalf("error %v", err)
	}
}

func TestACallThatOutlastsItsContextKillsTheChild(t *testing.T) {
	c, err := start(t, "echo")
	clitest.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "Hang", struct{}{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	<-c.exited
}

func TestStopEndsAChildThatDoesNotListen(t *testing.T) {
	c, err := start(t, "deaf")
	clitest.Must(t, err)
	c.Stop()
	select {
	case <-c.exited:
	default:
		t.Fatal("still running after Stop")
	}
}

// A child that is busy ends, too: its parent has no time to stop it.
func TestAChildEndsWithItsParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=parent")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	clitest.Must(t, err)
	var pid int
	_, err = fmt.Fscan(out, &pid)
	clitest.Must(t, err)
	child, err := unix.PidfdOpen(pid, 0)
	clitest.Must(t, err)
	defer unix.Close(child)
	_ = cmd.Process.Kill() // fails only if it has ended already
	_ = cmd.Wait()
	clitest.AwaitEnd(t, child)
}
