package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Matrix: RL-01
func TestIdleConnectionsAreMeasured(t *testing.T) {
	t.Setenv(asProgram, "1")
	opt, err := parseOptions([]string{"--idle", "50", "--servers", "net,epoll"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	opt.settle, opt.watch = 20*time.Millisecond, 50*time.Millisecond
	var out, progress bytes.Buffer
	if err := measureIdle(t.Context(), opt, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, want := range []string{"memory each", "net", "epoll"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
