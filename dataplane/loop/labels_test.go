package loop

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"
)

func TestProfilesTellTheCoresApart(t *testing.T) {
	p := newPlane(t, Config{Cores: 2, Name: "osd.7"})
	var text bytes.Buffer
	done := make(chan error)
	must(t, p.Core(1).Do(func(*Core) { done <- pprof.Lookup("goroutine").WriteTo(&text, 1) }))
	must(t, <-done)
	for _, want := range []string{`"core":"0", "messenger":"osd.7"`, `"core":"1", "messenger":"osd.7"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no goroutine has the labels %s in\n%s", want, &text)
		}
	}
}
