package rados_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// cluster is a monitor of ours that says where the only OSD is.
type cluster struct {
	addr    wire.Addr    // of the monitor
	primary atomic.Int32 // of every object; -1: none
	asked   atomic.Int32 // where an object is
	// silent is the first question of those that have no answer, 0: all have one; hold is
	// closed when they may.
	silent atomic.Int32
	hold   chan struct{}
}

func startCluster(t *testing.T, osd netip.AddrPort) *cluster {
	t.Helper()
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: new(uint32), Plane: dataplane.Config{Cores: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{hold: make(chan struct{})}
	command := func(_ *control.Conn, command map[string]any, _ []byte) (mon.Output, error) {
		if command["prefix"] == "osd dump" {
			text := fmt.Sprintf(`{"epoch":7,"osds":[{"osd":0,"up":1,"public_addrs":{"addrvec":[{"type":"v2","addr":"%v","nonce":5}]}}]}`, osd)
			return mon.Output{Data: []byte(text)}, nil
		}
		if n, first := c.asked.Add(1), c.silent.Load(); first > 0 && n >= first {
			<-c.hold
		}
		text := fmt.Sprintf(`{"epoch":7,"pool_id":1,"raw_pgid":"1.a5","pgid":"1.5","acting_primary":%d}`, c.primary.Load())
		return mon.Output{Data: []byte(text)}, nil
	}
	server := mon.NewServer(mon.ServerConfig{Command: command, Map: func() mon.MonMap {
		return mon.MonMap{FSID: mon.FSID{1}, Epoch: 1, Mons: []mon.Mon{{Name: "a", Addrs: m.Addrs()}}}
	}})
	if err := m.Start(server); err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	c.addr = addrs[0]
	return c
}

// A client waits for an OSD that can serve an object, as the real tools do, and
// says in the end what it waited for.
// Matrix: OB-09
func TestAClientWaitsForAnOSDUntilItsDeadline(t *testing.T) {
	// An OSD that accepts and says nothing.
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	osd := silent.Addr().(*net.TCPAddr).AddrPort()
	c := startCluster(t, osd)
	c.primary.Store(-1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := rados.Dial(ctx, rados.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Mons: []wire.Addr{c.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	// The time is over when it has asked twice.
	short, over := context.WithCancelCause(ctx)
	written := make(chan error, 1)
	go func() { written <- client.Write(short, "data", "object", []byte("text")) }()
	if err := msgrtest.Until(ctx, func() bool { return c.asked.Load() >= 2 }); err != nil {
		t.Errorf("asked %d times: %v", c.asked.Load(), err)
	}
	over(context.DeadlineExceeded)
	err = <-written
	if !errors.Is(err, rados.ErrNoOSD) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asked %d times, then %v; want ErrNoOSD at the deadline", c.asked.Load(), err)
	}

	// When one comes up the client goes there.
	c.asked.Store(0)
	reached := make(chan net.Conn, 1)
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			reached <- conn
		}
	}()
	long, stop := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- client.Write(long, "data", "object", []byte("text")) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.asked.Load() == 0 {
		<-tick.C
	}
	c.primary.Store(0)
	conn := <-reached
	defer conn.Close()
	late := errors.New("late")
	stop(late)
	if err := <-done; !errors.Is(err, rados.ErrNoAnswer) || !strings.Contains(err.Error(), "osd.0 at v2:"+osd.String()) {
		t.Errorf("%v, want ErrNoAnswer with the address", err)
	}
}

// Whatever a client waits for when its deadline comes, it says it: the OSD that is not
// there, even if the monitor was asked once more, or the monitor.
// Matrix: OB-09
func TestADeadlineTellsWhatWasWaitedFor(t *testing.T) {
	for _, first := range []int32{1, 2} {
		c := startCluster(t, netip.MustParseAddrPort("127.0.0.1:1"))
		c.primary.Store(-1)
		c.silent.Store(first)
		dialing, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		client, err := rados.Dial(dialing, rados.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Mons: []wire.Addr{c.addr}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, late := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- client.Write(ctx, "data", "object", []byte("text")) }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for c.asked.Load() < first {
			<-tick.C
		}
		late(context.DeadlineExceeded)
		err = <-done
		want := map[int32]error{1: mon.ErrNoAnswer, 2: rados.ErrNoOSD}[first]
		if !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("question %d has no answer: %v, want %v", first, err, want)
		}
		close(c.hold)
	}
}
