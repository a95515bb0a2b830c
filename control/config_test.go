package control_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

func TestAConfigurationThatCannotBeIsAnErrorThatNamesTheSetting(t *testing.T) {
	for says, change := range map[string]func(*control.Config){
		"entity name":       func(c *control.Config) { c.Name = wire.EntityName{} },
		"handshake timeout": func(c *control.Config) { c.HandshakeTimeout = -1 },
		"back-off":          func(c *control.Config) { c.InitialBackoff, c.MaxBackoff = 2*time.Second, time.Second },
		"steering":          func(c *control.Config) { c.Steer = "nowhere" },
		"steering table":    func(c *control.Config) { c.SteerTable = -1 },
		"hint ports":        func(c *control.Config) { c.HintPorts = bpf.PortRange{First: 9, Last: 8} },
		"ports to bind":     func(c *control.Config) { c.BindPorts = bpf.PortRange{Last: 8} },
		"bind retries":      func(c *control.Config) { c.BindRetries = -1 },
		"aligned":           func(c *control.Config) { c.AlignFrom = -1 },
		"half-open":         func(c *control.Config) { c.HalfOpen = -1 },
		"compression":       func(c *control.Config) { c.Compression.Methods = methods(handshake.CompressionMethod(9)) },
		"socket failure":    func(c *control.Config) { c.Inject.SocketFailures = -1 },
		"probability 1.1":   func(c *control.Config) { c.Inject.Handshakes.Probability = 1.1 },
		"probability NaN":   func(c *control.Config) { c.Inject.Handshakes.Probability = math.NaN() },
	} {
		cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: dataplane.Config{Cores: 1}}
		change(&cfg)
		if _, err := control.New(cfg); !errors.Is(err, control.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
