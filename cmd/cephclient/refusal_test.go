package main

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

const adminKeyring = "[client.admin]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n"

// monitor is a mon of ours; with server nil it has method none.
func monitor(t *testing.T, server auth.Server, modes []auth.Mode) (addr string) {
	t.Helper()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: new(uint32), Auth: control.Auth{Server: server, Modes: modes}, Plane: loop.Config{Cores: 1},
	})
	clitest.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
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
