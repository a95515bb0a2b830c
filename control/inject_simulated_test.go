package control_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// On a simulated network failures are injected as on a real one, and the same seed has
// the same course: the sockets of a lossless session are lost as often.
func TestTheSameSeedInjectsTheSameFailuresInASimulation(t *testing.T) {
	for _, protocol := range []wire.AddrType{wire.AddrMsgr2, wire.AddrLegacy} {
		one, again := injectedFaults(t, protocol), injectedFaults(t, protocol)
		if one == 0 || one != again {
			t.Errorf("%v: %d faults, then %d", protocol, one, again)
		}
	}
}

// injectedFaults is how many sockets a session loses over a hundred messages.
func injectedFaults(t *testing.T, protocol wire.AddrType) (faults uint64) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t)
		peer := control.LosslessPeer()
		configure := func(seed, nonce uint32) func(*control.Config) {
			return func(c *control.Config) {
				c.Default, c.Nonce, c.Inject = &peer, &nonce, control.Inject{Seed: uint64(seed), SocketFailures: 30}
			}
		}
		var got, want []uint64
		server, _ := s.start(1, wire.EntityName{Type: wire.OSD, ID: "0"}, &control.Dispatcher{
			Fast: func(_ *control.Conn, m *control.Message) bool { got = append(got, m.TID); return true },
		}, configure(1, 1))
		client, _ := s.start(2, wire.EntityName{Type: wire.OSD, ID: "1"}, &control.Dispatcher{}, configure(2, 2))
		to := wire.Addr{Type: protocol, AddrPort: s.at(1)}
		s.do(func() {
			bound, err := server.Bind(to)
			must(t, err)
			to = bound[0]
			own := wire.Addr{Type: protocol, AddrPort: s.at(2)}
			_, err = client.Bind(own)
			must(t, err)
		})
		conn, err := client.Connect(to, wire.OSD)
		must(t, err)
		attempts := time.NewTicker(10 * time.Millisecond)
		defer attempts.Stop()
		for tid := range uint64(100) {
			typed(t, conn, 1, tid)
			want = append(want, tid)
			for range 1000 {
				if s.settle(); len(got) > int(tid) {
					break
				}
				<-attempts.C // of the simulation
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("arrived %v", got)
		}
		s.do(func() {
			st, err := conn.Stats()
			must(t, err)
			faults = st.Counters.Faults
		})
		s.do(func() { must(t, client.Shutdown(t.Context())) })
		s.do(func() { must(t, server.Shutdown(t.Context())) })
	})
	return faults
}
