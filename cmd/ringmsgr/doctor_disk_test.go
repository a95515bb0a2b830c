package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestDoctorSaysHowFilesAreReadAndWritten(t *testing.T) {
	direct := uring.Alignment{Memory: 512, Offset: 4096}
	for _, c := range []struct {
		name    string
		s       uring.DiskSupport
		err     error
		backend uring.Backend
		state   checkState
		found   string
	}{
		{"ring", uring.DiskSupport{Alignment: direct, Registered: true}, nil, uring.IOUring, stateOK, "by the ring, in blocks of 4096"},
		{"pinned", uring.DiskSupport{Alignment: direct, Registered: true}, nil, uring.IOUring, stateOK, "buffers stay pinned"},
		{"not pinned", uring.DiskSupport{Alignment: direct, RegisteredWhy: "no room"}, nil, uring.IOUring, stateNote, "no registered buffers (no room)"},
		{"polled", uring.DiskSupport{Alignment: direct, Registered: true, Polled: true}, nil, uring.IOUring, stateOK, "polled completions work, and are not used"},
		{"not polled", uring.DiskSupport{Alignment: direct, Registered: true, PolledWhy: "not here"}, nil, uring.IOUring, stateOK, "no polled completions (not here)"},
		{"aio", uring.DiskSupport{Alignment: direct, AIO: true, NowaitRead: true, NowaitWrite: true}, nil, uring.Epoll, stateOK, "by Linux AIO"},
		{"writes", uring.DiskSupport{Alignment: direct, AIO: true, NowaitRead: true}, nil, uring.Epoll, stateOK, "buffered writes are left"},
		{"no aio", uring.DiskSupport{Alignment: direct, AIOWhy: "out of them", NowaitRead: true}, nil, uring.Epoll, stateNote, "out of them"},
		{"no direct", uring.DiskSupport{DirectWhy: "none here"}, nil, uring.IOUring, stateNote, "(none here): everything is copied to and from the page cache, and threads of the kernel wait"},
		{"no direct, no ring", uring.DiskSupport{DirectWhy: "none here"}, nil, uring.Epoll, stateNote, "and threads of the process wait"},
		{"no reads", uring.DiskSupport{DirectWhy: "none here"}, nil, uring.Epoll, stateNote, "buffered reads are left"},
		{"nothing", uring.DiskSupport{}, errors.New("not allowed"), uring.IOUring, stateNote, "not allowed"},
	} {
		if got := assessDisk("/d", c.s, c.err, c.backend); got.State != c.state || !strings.Contains(got.Found, c.found) || got.Name != "disk" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestDoctorTriesADisk(t *testing.T) {
	d := decode[diagnosis](t, ringmsgr(t, "doctor", "--json", "--cores", "1", "--backend", "epoll", "--disk", t.TempDir()).want(t, cli.OK))
	if last := d.Checks[len(d.Checks)-1]; len(d.Checks) != 13 || last.Name != "disk" || last.Found == "" {
		t.Errorf("%+v", d.Checks)
	}
}
