package scope

import (
	"log/slog"
	"testing"

	"github.com/spf13/pflag"
)

func TestNothingIsLoggedAtLevelOff(t *testing.T) {
	var e Engine
	fs := new(pflag.FlagSet)
	e.Register(fs)
	err := fs.Parse([]string{"--log-level", "off"})
	if err != nil || e.Logger(nil).Enabled(t.Context(), slog.LevelError) {
		t.Errorf("%+v, %v", e, err)
	}
}
