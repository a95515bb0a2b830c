package control

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
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
		if strings.HasPrefix(b.Name, "Default.") || b.Name == "frame.PreAuthLimits" || b.Name == "door.OwnBytes" || b.Name == "control.DialsAtOnce" || b.Name == "loop.LinesPerMinute" {
			continue
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
	cfg := Config{QueueBytes: -1, QueueMessages: -1, SendBytes: -1, DispatchBytes: -1, HalfOpenBytes: -1, LeastRate: -1, IdleTimeout: -1, FailureRate: -1, ControlRate: -1}
	for _, name := range []string{
		"QueueBytes", "QueueMessages", "SendBytes", "DispatchBytes", "HalfOpenBytes", "LeastRate", "IdleTimeout", "FailureRate", "FailureBurst", "ControlRate", "KeepaliveTimeout", "Default.Messages", "Default.Bytes",
	} {
		if b := bound(t, cfg, name); !b.Unlimited() {
			t.Errorf("%+v", b)
		}
	}
}

func TestWhatIsNoneHereIsNoneInTheDataPlaneToo(t *testing.T) {
	none := Config{QueueBytes: -1, QueueMessages: -1, IdleTimeout: -1, LeastRate: -1, ControlRate: -1}.withDefaults()
	of := func(c Config) (dataplane.HandlerConfig, dataplane.OpenOptions) {
		below := c.sessions(nil, nil)
		return below.Handler, below.Open
	}
	h, o := of(none)
	if h.QueueBytes >= 0 || h.QueueMessages >= 0 || o.IdleAfter >= 0 || o.LeastRate >= 0 || o.ControlRate >= 0 {
		t.Errorf("the data plane bounds what has no bound: %+v %+v", h, o)
	}
	zero := Config{}.withDefaults()
	h, o = of(zero)
	if h.QueueBytes != DefaultQueueBytes || h.QueueMessages != DefaultQueueMessages ||
		o.IdleAfter != DefaultIdleTimeout || o.LeastRate != DefaultLeastRate || o.ControlRate != DefaultControlRate || o.MessageGrace != DefaultMessageGrace {
		t.Errorf("the data plane does not get the defaults: %+v %+v", h, o)
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
		{Config{}, DefaultFailureRate, DefaultFailureBurst, DefaultHalfOpen},
		{Config{FailureRate: 3, FailureBurst: 5, HalfOpen: 7}, 3, 5, 7},
		{Config{FailureRate: -1}, 0, 0, DefaultHalfOpen},
		{Config{FailureBurst: -1}, 0, 0, DefaultHalfOpen},
	} {
		cfg := c.cfg.withDefaults()
		if r := cfg.door().Rate; r.PerSecond != c.rate || r.Burst != c.burst || r.Kept != c.kept || r.Clock == nil || r.Line <= 0 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}
