package control

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// bound is the bound of that name.
func bound(t *testing.T, cfg Config, name string) Bound {
	t.Helper()
	list := cfg.Bounds()
	i := slices.IndexFunc(list, func(b Bound) bool { return b.Name == name })
	if i < 0 {
		t.Fatalf("no bound %q", name)
	}
	return list[i]
}

func TestEveryBoundIsTheDefaultOfItsFieldAndFollowsIt(t *testing.T) {
	filled := Config{}.withDefaults()
	for _, b := range (Config{}).Bounds() {
		if b.Name[0] >= 'a' || strings.HasPrefix(b.Name, "Default.") {
			continue // a constant of a package, or of a policy
		}
		field, part, share := strings.Cut(b.Name, " ")
		of := func(c *Config) reflect.Value {
			v := reflect.ValueOf(c).Elem()
			for name := range strings.SplitSeq(field, ".") {
				if v = v.FieldByName(name); !v.IsValid() {
					t.Fatalf("%s is no field of Config", b.Name)
				}
			}
			return v
		}
		get := func(v reflect.Value) int64 {
			if v.CanUint() {
				return int64(v.Uint())
			}
			return v.Int()
		}
		if v := get(of(&filled)); !share && v != 0 && v != b.Value {
			t.Errorf("%s is %d, and the messenger takes %d", b.Name, b.Value, v)
		}
		// Below every default: a share is a part of its field only there.
		var changed Config
		if v := of(&changed); v.CanUint() {
			v.SetUint(640)
		} else {
			v.SetInt(640)
		}
		want := int64(640)
		if share {
			want = map[string]int64{"(share)": 10, "(source)": 40, "(prefix)": 160, "(reserve)": 160}[part]
		}
		if got := bound(t, changed, b.Name).Value; got != want {
			t.Errorf("%s of a configuration with 640 is %d, want %d", b.Name, got, want)
		}
		if !slices.Contains([]string{"messenger", "source", "prefix", "attempt", "frame", "message", "connection", "address", "core"}, b.Per) || b.Of == "" || b.Unit == "" {
			t.Errorf("%+v", b)
		}
	}
}

func TestABoundThatIsSwitchedOffIsNone(t *testing.T) {
	cfg := Config{Sending: Sending{QueueBytes: -1, QueueMessages: -1, Bytes: -1}, Receiving: Receiving{Bytes: -1, LeastRate: -1}, Door: Door{Bytes: -1, FailureRate: -1}, Timeouts: Timeouts{Idle: -1}}
	for _, name := range []string{
		"Sending.QueueBytes", "Sending.QueueMessages", "Sending.Bytes", "Receiving.Bytes", "Door.Bytes", "Receiving.LeastRate", "Timeouts.Idle",
		"Door.FailureRate", "Door.FailureBurst", "Timeouts.Keepalive", "Default.Messages", "Default.Bytes",
	} {
		if b := bound(t, cfg, name); b.Value != 0 {
			t.Errorf("%+v", b)
		}
	}
}

func TestTheDataPlaneGetsTheBoundsTheirDefaultsAndThatThereIsNone(t *testing.T) {
	of := func(c Config) (dataplane.HandlerConfig, dataplane.OpenOptions) {
		c = c.withDefaults()
		below := c.sessions(nil, nil)
		return below.Handler, below.Open
	}
	all := func(n int64) Config {
		return Config{
			Sending:  Sending{QueueBytes: n, QueueMessages: n},
			Timeouts: Timeouts{Idle: time.Duration(n)}, Receiving: Receiving{LeastRate: n},
		}
	}
	h, o := of(all(-1))
	if h.QueueBytes >= 0 || h.QueueMessages >= 0 || o.IdleAfter >= 0 || o.LeastRate >= 0 {
		t.Errorf("the data plane bounds what has no bound: %+v %+v", h, o)
	}
	h, o = of(Config{})
	if h.QueueBytes != dataplane.DefaultQueueBytes || h.QueueMessages != dataplane.DefaultQueueMessages ||
		o.IdleAfter != dataplane.DefaultIdleAfter || o.LeastRate != dataplane.DefaultLeastRate || o.MessageGrace != dataplane.DefaultMessageGrace {
		t.Errorf("the data plane does not get the defaults: %+v %+v", h, o)
	}
	if h, o = of(all(9)); h.QueueBytes != 9 || h.QueueMessages != 9 || o.IdleAfter != 9 || o.LeastRate != 9 {
		t.Errorf("%+v %+v", h, o)
	}
}

func TestThrottlesOfPoliciesAreBounds(t *testing.T) {
	policy := StatefulServer()
	policy.Messages, policy.Bytes = loop.NewThrottle(7), loop.NewThrottle(8)
	cfg := Config{Default: &policy, Policies: map[wire.EntityType]Policy{wire.Client: policy, wire.OSD: LosslessPeer()}}
	for name, want := range map[string]int64{
		"Default.Messages": 7, "Default.Bytes": 8, "Policies[client].Messages": 7, "Policies[client].Bytes": 8, "Policies[osd].Bytes": 0,
	} {
		if b := bound(t, cfg, name); b.Value != want || b.Per != "policy" {
			t.Errorf("%+v, want a value of %d", b, want)
		}
	}
}

func TestTheDoorGetsTheFailureRate(t *testing.T) {
	for _, c := range []struct {
		cfg               Config
		rate, burst, kept int
	}{
		{Config{}, 100, 1000, 4096},
		{Config{Door: Door{FailureRate: 3, FailureBurst: 5, HalfOpen: 7}}, 3, 5, 7},
		{Config{Door: Door{FailureRate: -1}}, 0, 0, 4096},
		{Config{Door: Door{FailureBurst: -1}}, 0, 0, 4096},
	} {
		cfg := c.cfg.withDefaults()
		if r := cfg.door().Rate; r.PerSecond != c.rate || r.Burst != c.burst || r.Kept != c.kept || r.Clock == nil || r.Line <= 0 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// There are as many of these as connections. Each fits a size of the
// allocator, which adds 8 bytes to what is larger than 512: one field more costs an idle
// connection up to 128 bytes.
// Matrix: RL-01
func TestWhatAConnectionConsistsOfKeepsItsSize(t *testing.T) {
	for _, one := range []struct {
		of   reflect.Type
		most uintptr
	}{
		{reflect.TypeFor[Conn](), 896 - 8},
		{reflect.TypeFor[dataplane.Handler](), 1024 - 8},
		{reflect.TypeFor[session2.Session](), 384},
		{reflect.TypeFor[loop.Socket](), 512},
		{reflect.TypeFor[struct {
			frame.Encoder
			dec frame.Decoder
		}](), 320},
	} {
		if got := one.of.Size(); got > one.most {
			t.Errorf("%v: %d bytes, want at most %d", one.of, got, one.most)
		}
	}
}
