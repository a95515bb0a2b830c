package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// listener accepts connections and writes text to each.
func listener(t *testing.T, says string) (addr string) {
	t.Helper()
	return clitest.Listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.WriteString(c, says) // it may have hung up
		_, _ = io.Copy(io.Discard, c)
	})
}

// Matrix: OB-09
func TestWhoDoesNotAnswerIsExplained(t *testing.T) {
	silent, msgr1, web := listener(t, ""), listener(t, "ceph v027"+strings.Repeat("\x00", 272)), listener(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	for _, c := range []struct {
		mon, what string
		says      []string
	}{
		{silent, "a frozen monitor", []string{"the monitor does not answer: nothing came from v2:" + silent + "/0: it is overloaded or frozen"}},
		{"127.0.0.1:1", "a wrong port", []string{"v2:127.0.0.1:1/0: ", "connection refused: nothing listens there"}},
		{msgr1, "a v1 address", []string{"this is the v1 address of a daemon, want its v2 one"}},
		{web, "a web server", []string{"this is a web server"}},
	} {
		stderr := ""
		if !clitest.InTime(func(limit time.Duration) bool {
			var status int
			var stdout string
			status, stdout, stderr = call(t, "--mon", c.mon, "--timeout", limit.String(), "status")
			if status != cli.Failed || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s: status %d, %q %q", c.what, status, stdout, stderr)
			}
			says := slices.Concat(c.says, []string{"cephclient status: connect as client.admin: ", "; gave up after " + limit.String() + " (--timeout)"})
			return !slices.ContainsFunc(says, func(want string) bool { return !strings.Contains(stderr, want) })
		}) {
			t.Errorf("%s: %q does not say %q", c.what, stderr, c.says)
		}
		for _, internal := range []string{"context deadline", "rados: ", "mon: the", "state connecting", "handshake with", "dataplane:"} {
			if strings.Contains(stderr, internal) {
				t.Errorf("%s: %q tells of %q", c.what, stderr, internal)
			}
		}
	}
}

// Which limit ends first, the messenger's or --timeout, is a matter of microseconds.
func TestASilentDaemonIsExplainedAlikeWhoeverGivesUpFirst(t *testing.T) {
	o := options{Session: scope.Session{Timeout: 10 * time.Second}}
	for _, why := range []error{
		context.DeadlineExceeded,
		&control.Error{Stage: control.StageBanner, Peer: "v2:127.0.0.1:1/0", Err: control.ErrHandshakeTimeout},
	} {
		for _, c := range []struct {
			err  error
			says string
		}{
			{fmt.Errorf("%w: nothing came from v2:127.0.0.1:1/0: %w", mon.ErrNoAnswer, why), "the monitor does not answer: nothing came from v2:127.0.0.1:1/0: "},
			{&rados.Error{OSD: 0, Outcome: rados.ErrUnknown, Waiting: "the OSD did not answer", Silent: true, Err: why}, "outcome unknown: for 0s the OSD did not answer: "},
		} {
			got := o.explain(errors.Join(context.DeadlineExceeded, c.err)).Error()
			for _, want := range []string{c.says, "it is overloaded or frozen", "gave up after 10s (--timeout)"} {
				if !strings.Contains(got, want) {
					t.Errorf("%v: %q does not say %q", why, got, want)
				}
			}
		}
	}
}

// The reason for which an operation waits decides the advice: only a silent daemon counts as
// frozen.
func TestAnOperationThatWaitsIsExplainedByItsReason(t *testing.T) {
	o := options{Session: scope.Session{Name: "client.x", Timeout: 10 * time.Second}}
	refused := fmt.Errorf("osd.0 refuses us: %w: %w", control.ErrAuth, &auth.Refused{Errno: auth.EACCES})
	for _, c := range []struct {
		err  error
		says string
	}{
		{&control.Error{Stage: control.StageConnect, Peer: "v2:127.0.0.1:1/0", Err: unix.ECONNREFUSED}, "nothing listens there"},
		{&control.Error{Stage: control.StageConnect, Peer: "v2:127.0.0.1:1/0", Err: unix.EMFILE}, "raise RLIMIT_NOFILE (ulimit -n)"},
		{refused, "no caps of OSDs (ceph auth get client.x), or the clock of the OSD is wrong, or it has not fetched the newest secret"},
		{nil, "it waits; gave up after 10s"},
	} {
		err := &rados.Error{Outcome: rados.ErrNotSent, Waiting: "it waits", Why: c.err, Err: context.DeadlineExceeded}
		if got := o.explain(err).Error(); !strings.Contains(got, c.says) || strings.Contains(got, "frozen") {
			t.Errorf("%v: %s", c.err, got)
		}
	}
	for _, err := range []error{unix.EPERM, &mon.CommandError{Errno: unix.EACCES}} {
		if got := o.explain(fmt.Errorf("snapshot: %w", err)).Error(); !strings.HasSuffix(got, "ceph auth get client.x shows the caps of the key") {
			t.Error(got)
		}
	}
	late := fmt.Errorf("rados: %w", &rados.Error{Outcome: rados.ErrNotSent, Waiting: "it waits", Err: context.DeadlineExceeded})
	gone := fmt.Errorf("rados: remove object %q: %w", "b", unix.ENOENT)
	if got := o.explain(errors.Join(late, gone, late)).Error(); !strings.Contains(got, `: for 0s it waits; remove object "b": no such file or directory; `) {
		t.Error(got)
	}
	if got := o.explain(errors.Join(control.ErrAuth, cephx.ErrNoTicket)).Error(); !strings.Contains(got, "the clock of this machine was set") {
		t.Error(got)
	}
}

const adminKeyring = "[client.admin]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n"

// monitor is a mon of ours; with server nil it has method none.
func monitor(t *testing.T, server auth.Server, modes []auth.Mode) (addr string) {
	t.Helper()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: new(uint32), Auth: control.Auth{Server: server, Modes: modes}, Plane: loop.Config{Cores: 1},
	})
	clitest.Must(t, err)
	t.Cleanup(func() { clitest.Must(t, scope.Close(m)) })
	clitest.Must(t, m.Start(mon.NewServer(mon.ServerConfig{Map: func() mon.MonMap { return mon.MonMap{Epoch: 1} }})))
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	clitest.Must(t, err)
	return addrs[0].String()
}

// A refusal comes at once, with its remedy.
func TestARefusalSaysWhatToDo(t *testing.T) {
	ring, err := cephx.ReadKeyring(strings.NewReader(adminKeyring + "[mon.]\nkey = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==\n"))
	clitest.Must(t, err)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	clitest.Must(t, err)
	server, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
	clitest.Must(t, err)
	file := func(name, text string) string {
		f := filepath.Join(t.TempDir(), name)
		clitest.Must(t, os.WriteFile(f, []byte(text), 0o600))
		return f
	}
	good := file("good", adminKeyring)
	wrong := file("wrong", "[client.admin]\nkey = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==\n")
	other := file("other", "[client.other]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n")
	keyed, secure, open := monitor(t, server, nil), monitor(t, server, []auth.Mode{auth.Secure}), monitor(t, nil, nil)
	for _, c := range []struct {
		mon, flags, want string
	}{
		{keyed, "--keyring " + wrong, "does not know client.admin with the key in " + wrong},
		{keyed, "--name client.other --keyring " + other, "does not know client.other with the key in " + other},
		{keyed, "", "wants a key, give --keyring"},
		{open, "--keyring " + good, "has no cephx, leave out --keyring"},
		{secure, "--mode crc --keyring " + good, "does not allow the modes of --mode"},
	} {
		args := append([]string{"--mon", c.mon, "--timeout", "10m"}, append(strings.Fields(c.flags), "status")...)
		status, stdout, stderr := call(t, args...)
		if status != cli.Failed || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %q", c.flags, status, stderr, c.want)
		}
	}
}
