package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A terminal shows the progress of a transfer, unless the user wants quiet. Other outputs do
// not.
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
		m.close() // no bytes were moved
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
