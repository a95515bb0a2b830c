package scope

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestAMessengerEndsBehindWhatItIsFor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2") // which is left alone
	failed := errors.New("failed")
	var used *control.Messenger
	cfg := control.Config{Name: wire.EntityName{Type: wire.Client, ID: "x"}, Plane: loop.Config{Cores: 1}}
	err := With(cfg, func(m *control.Messenger) error {
		used = m
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("it ends with %v", err)
	}
	if err := used.Start(); !errors.Is(err, control.ErrShutdown) {
		t.Errorf("it goes on: %v", err)
	}
	if err := With(control.Config{}, func(*control.Messenger) error { return nil }); err == nil || errors.Is(err, failed) {
		t.Errorf("without a name: %v", err)
	}
}

// session reads the flags of a client.
func session(args string) (cfg control.Config, err error) {
	var s Session
	fs := new(pflag.FlagSet)
	s.Register(fs, &cfg, "client.x", time.Second, "all")
	if err := fs.Parse(strings.Fields(args)); err != nil {
		return cfg, err
	}
	cfg.Name, err = s.Entity()
	return cfg, err
}

func TestRightValuesAreRead(t *testing.T) {
	var e Engine
	fs := new(pflag.FlagSet)
	e.Register(fs)
	err := fs.Parse([]string{"--backend", "epoll", "--log-level", "off"})
	if err != nil || e.Backend != uring.Epoll || e.Logger(nil).Enabled(t.Context(), slog.LevelError) {
		t.Errorf("%+v, %v", e, err)
	}
	for _, c := range []struct {
		args string
		want control.Config
	}{
		{"", control.Config{Name: wire.EntityName{Type: wire.Client, ID: "x"}}},
		{"--name osd.3 --rev 0 --timeout 1ns", control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "3"}, Protocol: control.Protocol{Rev0: true}}},
		{"--mode secure,crc --proto v1", control.Config{Name: wire.EntityName{Type: wire.Client, ID: "x"}, Auth: control.Auth{Modes: []auth.Mode{auth.Secure, auth.CRC}}}},
	} {
		if got, err := session(c.args); err != nil || got.Name != c.want.Name || got.Protocol.Rev0 != c.want.Protocol.Rev0 || !slices.Equal(got.Auth.Modes, c.want.Auth.Modes) {
			t.Errorf("%q: %+v, %v", c.args, got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "keyring")
	clitest.Must(t, os.WriteFile(file, []byte("[client.x]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n"), 0o600))
	ring, err := Keyring(file)
	clitest.Must(t, err)
	if _, ok := ring.Lookup(wire.EntityName{Type: wire.Client, ID: "x"}); !ok {
		t.Error("the key is not there")
	}
}
