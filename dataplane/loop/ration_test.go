package loop

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newLogger makes a Logger, and what it has written without the time.
func newLogger(now func() time.Time) (*RationedLogger, *bytes.Buffer) {
	out := new(bytes.Buffer)
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return NewRationedLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: noTime})), now), out
}

func TestACauseHasTenLinesAMinuteAndTheRestIsCounted(t *testing.T) {
	now := time.Unix(0, 0)
	l, out := newLogger(func() time.Time { return now })
	for i := range 25 {
		l.Info("refused", "n", i)
		now = now.Add(time.Second)
	}
	l.Warn("another")
	if got := strings.Count(out.String(), "msg=refused"); got != LinesPerMinute || !strings.Contains(out.String(), "level=WARN msg=another") {
		t.Fatalf("%d lines:\n%s", got, out)
	}
	out.Reset()
	now = now.Add(35 * time.Second)
	l.Info("refused", "n", 25)
	l.Info("refused", "n", 26)
	want := "level=INFO msg=refused n=25 left_out=15\nlevel=INFO msg=refused n=26\n"
	if out.String() != want {
		t.Errorf("a minute later:\n%swant\n%s", out, want)
	}
}

func TestALevelThatIsOffUsesNothingUp(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewRationedLogger(slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelError})), func() time.Time { return now })
	l.Warn("refused")
	if len(l.causes) != 0 {
		t.Error("counted")
	}
}

func TestALineAsideIsWrittenByAnotherGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newLogger(time.Now)
		for range LinesPerMinute + 1 {
			l.WarnAside("refused", "peer", 1)
			synctest.Wait()
		}
		if got := strings.Count(out.String(), "level=WARN msg=refused peer=1\n"); got != LinesPerMinute {
			t.Errorf("%d lines:\n%s", got, out)
		}
	})
}
