//go:build !epoll && !giouring

package interop_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Package cephx, which is the same in all builds, has tests of its own against a cluster that somebody gives
// them. Here is one.
func TestPackageCephxPassesAgainstARealCluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-json", "-run", "Interop", "../auth/cephx")
	cmd.Env = append(os.Environ(), "RINGMSGR_INTEROP=1",
		"CEPH_CONF="+c.file("ceph.conf"), "CEPH_KEYRING="+c.file("keyring"), "MON_V2="+c.monAddr[0].AddrPort.String())
	out, err := cmd.CombinedOutput()
	passed, said := judge(out)
	for _, line := range said {
		t.Error(line)
	}
	if err != nil || passed == 0 {
		t.Errorf("%d tests passed, %v: %v", passed, err, cmd)
	}
}

// judge counts the tests that pass in the output of "go test -json", and returns what
// those say that fail or are skipped; then, if something fails, what no test says.
func judge(output []byte) (passed int, said []string) {
	lines := make(map[string][]string) // by test; "" for what none says
	failed := false
	for line := range strings.Lines(string(output)) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal([]byte(line), &e) != nil {
			e.Action, e.Output = "output", line // of the go command itself
		}
		text := strings.TrimSpace(e.Output)
		switch {
		case strings.HasSuffix(e.Action, "output") && text != "" && !strings.HasPrefix(text, "=== "):
			lines[e.Test] = append(lines[e.Test], strings.TrimSpace(e.Test+" "+text))
		case e.Action == "pass" && e.Test != "":
			passed++
		case e.Action == "fail" || e.Action == "build-fail":
			failed = true
			fallthrough
		case e.Action == "skip":
			if e.Test != "" {
				said = append(said, lines[e.Test]...)
			}
		}
	}
	if failed {
		said = append(said, lines[""]...)
	}
	return passed, said
}

func TestWhatFailsInANestedRunIsSaidFirst(t *testing.T) {
	for output, want := range map[string]struct {
		passed int
		said   []string
	}{
		`{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:1: loud\n"}
{"Action":"pass","Test":"TestA"}
{"Action":"output","Test":"TestB/x","Output":"    b_test.go:2: refused\n"}
{"Action":"fail","Test":"TestB/x"}
{"Action":"output","Test":"TestB","Output":"--- FAIL: TestB (0.10s)\n"}
{"Action":"fail","Test":"TestB"}
{"Action":"output","Output":"FAIL\n"}
{"Action":"fail"}
`: {1, []string{"TestB/x b_test.go:2: refused", "TestB --- FAIL: TestB (0.10s)", "FAIL"}},
		`{"Action":"pass","Test":"TestA"}
{"Action":"output","Output":"PASS\n"}
{"Action":"pass"}
`: {1, nil},
		`{"Action":"output","Test":"TestA","Output":"    a_test.go:1: no cluster\n"}
{"Action":"skip","Test":"TestA"}
`: {0, []string{"TestA a_test.go:1: no cluster"}},
		`{"Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"Action":"build-fail"}
{"Action":"fail"}
`: {0, []string{"a.go:1: undefined: x"}},
	} {
		if passed, said := judge([]byte(output)); passed != want.passed || !slices.Equal(said, want.said) {
			t.Errorf("%d passed, said %q of\n%s", passed, said, output)
		}
	}
}
