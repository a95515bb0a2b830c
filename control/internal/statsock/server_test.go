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

// ask connects, says something, and wants an answer up to the end. What a busy machine says too late it says again.
func ask(t *testing.T, path, say, want string) {
	t.Helper()
	for tries := 1; ; tries++ {
		c, err := net.Dial("unix", path)
		drivertest.Must(t, err)
		_, late := io.WriteString(c, say)
		got, err := io.ReadAll(c)
		if err = errors.Join(late, err, c.Close()); err == nil && string(got) == want {
			return
		} else if tries == 20 {
			t.Fatalf("%q: %q, %v, want %q", say, got, err, want)
		}
	}
}

func TestAReaderGetsTheFormThatItNames(t *testing.T) {
	drivertest.LeavesNothing(t)
	path := serve(t, seven)
	for say, want := range map[string]string{
		"text\n": "the number is seven\n", "json\n": "{\"N\":7}\n", "": "{\"N\":7}\n", "something else\n": "{\"N\":7}\n",
	} {
		ask(t, path, say, want)
	}
	var n number
	if err := statsock.Read(t.Context(), path, &n); err != nil || n.N != 7 {
		t.Errorf("read %+v, %v", n, err)
	}
}

func TestAReaderOfAFailedSnapshotIsHungUpOn(t *testing.T) {
	drivertest.LeavesNothing(t)
	path := serve(t, func() (statsock.Snapshot, error) { return nil, errors.New("no") })
	ask(t, path, "text\n", "")
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
