package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A terminal is told how far a transfer is, unless somebody wants quiet. Nobody else is.
func TestProgressIsForTerminals(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	defer terminal.Close()
	size := func() int64 { return 100 }
	for _, c := range []struct {
		e    env
		says bool
	}{
		{env{stderr: terminal, options: &options{}}, true},
		{env{stderr: terminal, options: &options{quiet: true}}, false},
		{env{stderr: new(bytes.Buffer), options: &options{}}, false},
	} {
		m := c.e.meter(size)
		if (m.to != nil) != c.says {
			t.Errorf("%+v", m)
		}
		var out strings.Builder
		m.close() // nothing was moved
		if m.to == nil {
			m.add(50)
			m.close()
			continue
		}
		m.to = &out
		m.add(50)
		m.add(200) // the file grew
		m.close()
		if text := out.String(); !strings.Contains(text, "50 B [==========          ] of 100 B, ") || !strings.Contains(text, "250 B [====================] of 100 B, ") || !strings.HasSuffix(text, "\n") {
			t.Errorf("%q", text)
		}
	}
}
