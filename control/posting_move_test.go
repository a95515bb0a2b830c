package control

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// A connection may leave its core while a posting is on the way there: only the core that
// owns the connection may arm the posting.
func TestAPostingFollowsAConnectionThatHasLeftItsCore(t *testing.T) {
	name, err := wire.ParseEntityName("client.1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Name: name, Number: 1, Plane: dataplane.Config{Cores: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Shutdown(context.Background()) }()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	to, err := wire.ParseAddr("v2:127.0.0.1:1/1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Connect(to, wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	came, first := make(chan bool, 2), true
	p := &Posting{TID: 1, Buffer: make([]byte, 10), Done: func(*Posting, error) {}}
	p.task.Run = func(at *dataplane.Core) {
		if first {
			first = false
			at = m.plane.Core(1 - at.ID()) // the connection has left it
		}
		p.arrive(at)
		came <- p.pending
	}
	if err := c.PostBuffer(p); err != nil {
		t.Fatal(err)
	}
	if waits := <-came; !waits {
		t.Fatal("a core that does not own the connection armed the posting")
	}
	if waits := <-came; waits {
		t.Error("the owner did not arm the posting")
	}
}
