package proctest

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// sleeps marks a process of the test binary that waits until its input ends.
const sleeps = "RINGMSGR_TEST_SLEEPS"

// Main is the TestMain of a package whose tests use Sleeper. It does not return.
func Main(m *testing.M) {
	if os.Getenv(sleeps) != "" {
		_, _ = os.Stdout.Write([]byte{'\n'}) // it has started
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Sleeper starts a process that waits until the test ends, and returns its number.
// It has started when Sleeper returns. TestMain must call Main.
func Sleeper(t testing.TB) (pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sleeps+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}
