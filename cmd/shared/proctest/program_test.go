package proctest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/proctest"
)

func TestMain(m *testing.M) { proctest.Program(m, echo) }

// echo is a program that writes its argument, waits for a signal, and exits with status 3.
func echo() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	fmt.Println("here is", os.Args[1])
	fmt.Fprintln(os.Stderr, "as was asked")
	<-ended
	os.Exit(3)
}

func TestAProgramIsStartedSignalledAndEnds(t *testing.T) {
	p := proctest.Start(t, "one")
	if line := p.Line(); line != "here is one" || p.PID() == os.Getpid() {
		t.Errorf("%q of process %d", line, p.PID())
	}
	p.Signal(syscall.SIGTERM)
	p.Want(3)
	if p.Stderr() != "as was asked\n" {
		t.Errorf("it says %q", p.Stderr())
	}
}

func TestAProgramThatIsKilledHasEnded(t *testing.T) {
	p := proctest.Start(t, "two")
	p.Line()
	p.Kill()
	p.Kill()
	if err := syscall.Kill(p.PID(), 0); err != syscall.ESRCH {
		t.Errorf("the process is still there: %v", err)
	}
}

func TestACommandIsTheProgram(t *testing.T) {
	cmd := proctest.Command(t, "three")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasSuffix(line, "three\n") {
		t.Errorf("%q, %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
}
