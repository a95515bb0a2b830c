package statsock_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/statsock"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

type number struct{ N int }

func (n number) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, "the number is seven\n")
	return err
}

func serve(t *testing.T, take func() (statsock.Snapshot, error)) string {
	t.Helper()
	s, err := statsock.Serve(filepath.Join(t.TempDir(), "stats"), take, slog.New(slog.DiscardHandler))
	drivertest.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

func seven() (statsock.Snapshot, error) { return number{7}, nil }

// ask connects, says something, and reads until the end.
func ask(path, say string) (string, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, late := io.WriteString(c, say)
	b, err := io.ReadAll(c)
	return string(b), errors.Join(late, err)
}

// answers wants an answer. The server does not wait for what is said: a busy machine may say it too late, and says it again.
func answers(t *testing.T, path, say, want string) {
	t.Helper()
	got, err := ask(path, say)
	for tries := 1; tries < 20 && (err != nil || got != want); tries++ {
		got, err = ask(path, say)
	}
	if err != nil || got != want {
		t.Errorf("%q: %q, %v, want %q", say, got, err, want)
	}
}

func TestAReaderGetsTheFormThatItNames(t *testing.T) {
	drivertest.LeavesNothing(t)
	path := serve(t, seven)
	for say, want := range map[string]string{
		"text\n": "the number is seven\n", "json\n": "{\"N\":7}\n", "": "{\"N\":7}\n", "something else\n": "{\"N\":7}\n",
	} {
		answers(t, path, say, want)
	}
	var n number
	if err := statsock.Read(t.Context(), path, &n); err != nil || n.N != 7 {
		t.Errorf("read %+v, %v", n, err)
	}
}

func TestAReaderOfAFailedSnapshotIsHungUpOn(t *testing.T) {
	drivertest.LeavesNothing(t)
	path := serve(t, func() (statsock.Snapshot, error) { return nil, errors.New("no") })
	answers(t, path, "text\n", "")
	if err := statsock.Read(t.Context(), path, &number{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

func TestAReadEndsWithItsContext(t *testing.T) {
	drivertest.LeavesNothing(t)
	taken, over := make(chan struct{}), make(chan struct{})
	path := serve(t, func() (statsock.Snapshot, error) {
		close(taken)
		<-over
		return number{}, nil
	})
	defer close(over)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-taken
		cancel()
	}()
	if err := statsock.Read(ctx, path, &number{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
