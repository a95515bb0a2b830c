package handover

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func links(t *testing.T) (predecessor, successor *link) {
	t.Helper()
	a, b := linktest.UnixPair(t)
	predecessor, successor = newLink(t.Context(), a), newLink(t.Context(), b)
	t.Cleanup(predecessor.close)
	t.Cleanup(successor.close)
	return predecessor, successor
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	drivertest.Must(t, errors.Join(errs...))
}

// More of them than one message takes.
func TestDescriptorsComeAcrossAndAreClosed(t *testing.T) {
	p, s := links(t)
	const listeners = 2*filesPerCall + 1
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	fds := slices.Repeat([]int{int(w.Fd())}, listeners)
	must(t, p.sendFiles(recordListeners, fds), p.sendFiles(recordSteering, fds[:1]))
	got, err := s.readFiles(recordListeners, listeners)
	must(t, err)
	steering, err := s.readFiles(recordSteering, 1)
	must(t, err)
	if len(got) != listeners || len(steering) != 1 {
		t.Fatalf("%d and %d descriptors", len(got), len(steering))
	}
	// They are the same pipe: it ends when the last one is closed.
	must(t, w.Close())
	CloseFiles(got)
	if _, err := unix.Write(steering[0], []byte("x")); err != nil {
		t.Error(err)
	}
	CloseFiles(steering)
	if all, err := io.ReadAll(r); string(all) != "x" || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
}

func TestMoreDescriptorsThanALinkTakesAreNotSent(t *testing.T) {
	p, _ := links(t)
	if err := p.sendFiles(recordListeners, make([]int, filesMax+1)); !errors.Is(err, ErrHandOver) {
		t.Errorf("%v", err)
	}
}

// Whoever waits for the commit gives up at its deadline, and what the successor
// wrote before that still counts; what it writes afterwards fails.
func TestOnlyACommitInTimeCounts(t *testing.T) {
	for _, early := range []bool{true, false} {
		a, b := linktest.UnixPair(t)
		p, s := newLink(t.Context(), a), newLink(t.Context(), b)
		if early {
			must(t, s.send(recordCommitted, nothing))
		}
		must(t, a.SetDeadline(time.Unix(1, 0))) // as the end of the context does
		if err := p.awaitCommitted(); (err == nil) != early {
			t.Errorf("early %v: %v", early, err)
		}
		if !early {
			if err := s.send(recordCommitted, nothing); err == nil {
				t.Error("it commits after the other side has given up")
			}
		}
		p.close()
		s.close()
	}
}
