package scope

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
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

func TestNothingIsLoggedAtLevelOff(t *testing.T) {
	var e Engine
	fs := new(pflag.FlagSet)
	e.Register(fs)
	err := fs.Parse([]string{"--log-level", "off"})
	if err != nil || e.Logger(nil).Enabled(t.Context(), slog.LevelError) {
		t.Errorf("%+v, %v", e, err)
	}
}
