//go:build !race

package engine

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
)

// A call that starts itself again in its Done has no memory of its own for each time.
func TestACallAllocatesNothing(t *testing.T) {
	c := start(t, Config{})
	c.publish()
	var answer *control.Message
	c.do(func(conn *control.Conn, m *control.Message) bool {
		if answer == nil {
			answer = reply(m, 0, make([]byte, 4096))
		}
		again := control.NewMessage(answer.Type, answer.Front, answer.Data)
		again.TID, again.Version, again.CompatVersion = m.TID, answer.Version, answer.CompatVersion
		_ = conn.Send(again)
		return false
	})
	var call Call
	done := make(chan struct{})
	left := 0
	call.Request, call.Into = c.read(4096), make([]byte, 4096)
	ctx := context.Background()
	call.Done = func(k *Call) {
		if left--; left == 0 || k.Err != nil {
			done <- struct{}{}
			return
		}
		if err := c.e.Start(ctx, k); err != nil {
			t.Error(err)
			done <- struct{}{}
		}
	}
	const rounds = 1000
	n := testing.AllocsPerRun(5, func() {
		left = rounds
		if err := c.e.Start(ctx, &call); err != nil {
			t.Fatal(err)
		}
		<-done
	})
	// The OSD is in this process, too, and makes two for each answer.
	if call.Err != nil || n > 2.2*rounds {
		t.Errorf("%v; %v allocations in %d calls", call.Err, n, rounds)
	}
	t.Logf("%.2f allocations per call, those of the OSD included", n/rounds)
}
