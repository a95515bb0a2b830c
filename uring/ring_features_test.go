//go:build !epoll

package uring_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// onRing runs f over the ring of this build.
func onRing(t *testing.T, cfg uring.Config, f func(t *testing.T, r *rig)) {
	t.Helper()
	cfg.Backend = uring.Flavour
	f(t, lockedRig(t, cfg))
}

// Kernels from 6.1 on lack some features: without each alone, and without all of them, the
// driver works, and says which it lacks.
// Matrix: IO-02, IO-14
func TestRingWorksWithoutItsFeatures(t *testing.T) {
	sets := map[string][]string{"nothing off": nil}
	var all []string
	onRing(t, uring.Config{}, func(t *testing.T, r *rig) {
		for _, f := range r.d.Info().Features {
			sets[f.Name] = []string{f.Name}
			if f.Name == uring.FeatureNoSQArray && uring.Flavour == uring.Giouring && !strings.Contains(f.Why, "giouring") {
				t.Errorf("%+v: it is the package that lacks it", f)
			}
			all = append(all, f.Name)
		}
	})
	sets["everything off"] = all
	sets["like 6.1"] = []string{uring.FeatureNoSQArray, uring.FeatureFileTable, uring.FeatureIncremental, uring.FeatureReportUsage}
	for name, off := range sets {
		t.Run(name, func(t *testing.T) {
			onRing(t, uring.Without(uring.Config{Entries: 16}, off...), func(t *testing.T, r *rig) {
				for _, f := range r.d.Info().Features {
					for _, o := range off {
						if f.Name == o && (f.Have || f.Why == "") {
							t.Errorf("%+v was switched off", f)
						}
					}
					if f.Have == (f.Why != "") || f.Name == uring.FeatureIncremental && f.Have != r.d.Info().Receive {
						t.Errorf("%+v: want either the feature or a reason", f)
					}
				}
				e := newEcho(r)
				for range 20 {
					e.round()
				}
				takeConnections(t, r)
			})
			onRing(t, uring.Without(uring.Config{Entries: 16}, off...), func(t *testing.T, r *rig) {
				newModel(r, random(t)).run(300)
			})
		})
	}
}

// takeConnections accepts as an application does: it arms again after a final completion.
func takeConnections(t *testing.T, r *rig) {
	t.Helper()
	l := r.listen(loopback, uring.ListenOptions{})
	user, _ := r.accept(l)
	for range 5 {
		r.connected(loopback, r.d.LocalAddr(l), uring.SocketOptions{})
		c := r.await(user)
		if c.Res < 0 {
			t.Fatalf("accept: %v", c.Errno())
		}
		r.adopt(c.Res)
		if c.Flags&uring.More == 0 {
			user, _ = r.accept(l)
		}
	}
}

func TestZeroCopySaysThatLoopbackCopies(t *testing.T) {
	onRing(t, uring.Config{}, func(t *testing.T, r *rig) {
		for _, f := range r.d.Info().Features {
			if f.Name == uring.FeatureReportUsage && !f.Have {
				t.Skipf("no report: %s", f.Why)
			}
		}
		s, conn := r.plain()
		_, user, _ := r.send(s, r.vec(make([]byte, 4096)), uring.SendZeroCopy)
		if c := r.await(user); c.Res != 4096 || c.Flags != uring.Copied {
			t.Errorf("completion %+v, want 4096 bytes, copied", c)
		}
		conn.Close()
	})
}

// The kernel keeps the memory of a zero-copy send until the peer has it, which may never be: so the
// end of the driver resets the connection.
// Matrix: IO-06
func TestTheEndOfTheDriverFreesWhatASilentPeerDoesNotTake(t *testing.T) {
	onRing(t, uring.Config{}, func(t *testing.T, r *rig) {
		s, _ := r.plain()
		if done, user, _ := r.send(s, r.vec(make([]byte, 16<<20)), uring.SendZeroCopy); !done {
			r.expectNone(user)
		}
		r.closeDriver() // which fails if the kernel keeps it
	})
}

// More events at once than the completion queue has room for: none is lost.
// Matrix: RL-09, IO-01, IO-11, OB-03
func TestCompletionQueueOverflow(t *testing.T) {
	for name, off := range map[string][]string{"deferred": nil, "at once": {uring.FeatureDeferTaskrun}} {
		t.Run(name, func(t *testing.T) {
			onRing(t, uring.Without(uring.Config{Entries: 2}, off...), func(t *testing.T, r *rig) {
				const sockets = 200 // the queue has 16 places
				var users []uint64
				var peers []int
				var armed []uring.Socket
				for range sockets {
					pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
					must(t, err)
					defer unix.Close(pair[1])
					s := r.adopt(int32(pair[0]))
					user, _ := r.ready(s)
					users, peers, armed = append(users, user), append(peers, pair[1]), append(armed, s)
				}
				r.settle()
				for round := range 3 {
					for _, fd := range peers {
						if _, err := unix.Write(fd, []byte("x")); err != nil {
							t.Fatal(err)
						}
					}
					r.d.Wake() // behind them, so that its answer finds no room
					for i := range users {
						if c := r.await(users[i]); c.Res <= 0 {
							t.Fatalf("round %d, socket %d: %+v", round, i, c)
						} else if c.Flags&uring.More == 0 {
							users[i], _ = r.ready(armed[i])
						}
					}
				}
				// Whoever sleeps is woken all the same.
				r.settle()
				for range 3 {
					go r.d.Wake()
					begun := time.Now()
					if _, err := r.d.Wait(patience); err != nil {
						t.Fatal(err)
					}
					if time.Since(begun) >= patience {
						t.Fatal("nothing woke it")
					}
				}
				if name == "at once" && r.d.Stats().Overflows == 0 {
					t.Error("the queue never overflowed: nothing was tested")
				}
			})
		})
	}
}

// Far more requests in one turn than the queue has room for, in order.
// Matrix: RL-09, IO-09
func TestSubmissionQueueFull(t *testing.T) {
	onRing(t, uring.Config{Entries: 2}, func(t *testing.T, r *rig) {
		const sends = 50
		r.slice = time.Millisecond // what a quiet send waits for
		var users []uint64
		var peers []int
		for i := range sends {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			defer unix.Close(pair[1])
			s := r.adopt(int32(pair[0]))
			_, user, _ := r.send(s, r.vec([]byte{byte(i)}), uring.SendFlags(i%2)) // every second one quiet
			users, peers = append(users, user), append(peers, pair[1])
			if i%5 == 0 {
				r.d.EndWriting(s) // behind the send
			}
		}
		for i, user := range users {
			if c := r.await(user); c.Res != 1 {
				t.Fatalf("send %d: %+v (%v)", i, c, c.Errno())
			}
			var b [2]byte
			if n, err := unix.Read(peers[i], b[:]); n != 1 || b[0] != byte(i) {
				t.Fatalf("peer %d read %d bytes, %v", i, n, err)
			}
		}
		if r.d.Stats().SQFull == 0 {
			t.Error("the queue was never full: nothing was tested")
		}
	})
}

// The 16-bit index of the buffer ring goes round.
// Matrix: IO-22
func TestReceiveBufferIndexWraps(t *testing.T) {
	onRing(t, uring.Tuned(uring.Config{}, uring.Tuning{Buffers: 2, BufferSize: 16}), func(t *testing.T, r *rig) {
		if !r.d.Info().Receive {
			t.Skip("no receive buffers here")
		}
		s, conn := r.plain()
		chunk := randomBytes(random(t), 64<<10)
		const chunks = 18 // in pieces of 16 bytes: more than 65536 buffers
		go func() {
			for range chunks {
				conn.Write(chunk)
			}
		}()
		user, _ := r.receive(s)
		for got := 0; got < chunks*len(chunk); {
			c := r.await(user)
			at := got % len(chunk)
			if string(c.Data) != string(chunk[at:at+len(c.Data)]) {
				t.Fatalf("wrong bytes at %d", got)
			}
			got += len(c.Data)
			r.d.Release(c.Buf)
			if c.Flags&uring.More == 0 {
				user, _ = r.receive(s)
			}
		}
	})
}
