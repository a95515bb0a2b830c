package pair_test

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
)

// A test of a server: requests are answered also when connections break.
func ExampleTest() {
	var t *testing.T // of your test
	serverAnswersOverFaults(t)
}

func serverAnswersOverFaults(t *testing.T) {
	pair.Test(t, pair.Config{Serve: upper()}, func(t *testing.T, p *pair.Pair) {
		for range 3 {
			reply, err := p.Conn.Call(p.Context, control.NewMessage(1000, []byte("hello"), nil))
			if err != nil {
				t.Fatal(err)
			}
			if string(reply.Front) != "HELLO" {
				t.Errorf("answered %q", reply.Front)
			}
			reply.Release()
			p.Do(p.ServerHost.ResetAll) // the session goes on
		}
	})
}

func TestTheExampleHolds(t *testing.T) { serverAnswersOverFaults(t) }
