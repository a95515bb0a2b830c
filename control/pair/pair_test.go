package pair_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var must = drivertest.Must

// upper answers each request with its text in capital letters.
func upper() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool {
		_ = c.Reply(r, control.NewMessage(r.Type, bytes.ToUpper(r.Front), nil))
		return true
	}}
}

// ask calls and checks the answer.
func ask(t *testing.T, ctx context.Context, c *control.Conn, text string) {
	t.Helper()
	reply, err := c.Call(ctx, control.NewMessage(1000, []byte(text), nil))
	must(t, err)
	defer reply.Release()
	if want := bytes.ToUpper([]byte(text)); !bytes.Equal(reply.Front, want) {
		t.Errorf("%q, want %q", reply.Front, want)
	}
}

func TestTimeIsLetPassWhileNobodyHasAnythingToDo(t *testing.T) {
	pair.Test(t, pair.Config{Serve: upper()}, func(t *testing.T, p *pair.Pair) {
		fired, began := false, time.Now()
		time.AfterFunc(59*time.Minute, func() { fired = true })
		p.Pass(58 * time.Minute)
		if took := time.Since(began); took != 58*time.Minute || fired {
			t.Errorf("%v passed, a timer of 59 minutes fired: %t", took, fired)
		}
		ask(t, p.Context, p.Conn, "still there")
	})
}

// The time is the bubble's, for the network and for everybody else.
func TestTimePassesWithTheNetwork(t *testing.T) {
	cfg := pair.Config{Serve: upper()}
	cfg.Network.Latency = time.Minute
	cfg.Server.Timeouts.Handshake, cfg.Client.Timeouts.Handshake = 24*time.Hour, 24*time.Hour
	cfg.Server.Timeouts.Idle, cfg.Client.Timeouts.Idle = -1, -1
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		began := time.Now()
		reply, err := p.Conn.Call(context.Background(), control.NewMessage(1000, []byte("x"), nil))
		must(t, err)
		reply.Release()
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("there and back took %v", took)
		}
	})
}

func TestTheContextEndsWhatNeverHappens(t *testing.T) {
	pair.Test(t, pair.Config{}, func(t *testing.T, p *pair.Pair) {
		_, err := p.Conn.Call(p.Context, control.NewMessage(1000, nil, nil))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestWhatIsSentHasArrivedWhenItSettles(t *testing.T) {
	came := 0 // without a lock: who settles sees what cores did
	cfg := pair.Config{Serve: &control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool { came++; return true }}}
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		must(t, p.Conn.Send(control.NewMessage(1, nil, nil)))
		p.Settle()
		if came != 0 {
			t.Error("it came without the latency of the network")
		}
		over := make(chan struct{})
		p.Do(func() { p.Network.After(100*time.Microsecond, func() { close(over) }) })
		<-over
		p.Settle()
		if came != 1 {
			t.Errorf("%d came", came)
		}
	})
}

// slow is a source of random numbers that takes its time.
type slow struct{}

func (slow) Read(p []byte) (int, error) {
	over, end := context.WithTimeout(context.Background(), time.Millisecond)
	defer end()
	<-over.Done()
	return rand.Read(p)
}

func TestPairsHaveAnyConfigurationAndCoresThatComeAndGo(t *testing.T) {
	lossy, stateless := control.LossyClient(), control.StatelessServer()
	cfg := pair.Config{Serve: upper()}
	cfg.Server = control.Config{Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Default: &stateless, Plane: loop.Config{Cores: 3}, Rand: slow{}}
	cfg.Client = control.Config{Default: &lossy, Plane: loop.Config{Cores: 2}}
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		ask(t, p.Context, p.Conn, "one")
		for i := range 2 {
			must(t, p.Server.RemoveCore(p.Context, i))
			ask(t, p.Context, p.Conn, "more")
		}
		_, err := p.Server.AddCore(p.Context)
		must(t, err)
		other, err := p.Client.Connect(p.Addr, wire.Mon, control.Anonymous())
		must(t, err)
		ask(t, p.Context, other, "two")
		if err := p.Client.Shutdown(p.Context); err != nil { // Test does it again
			t.Error(err)
		}
	})
}

// A server that opens something is started by Open, in each of its processes, and not bound
// when that fails.
// Matrix: KV-09
func TestAServerThatCannotOpenWhatItHasIsAnErrorOfRestart(t *testing.T) {
	damaged, processes := errors.New("damaged"), 0
	cfg := pair.Config{Open: func(p *pair.Pair) (*control.Dispatcher, error) {
		if processes++; processes == 3 {
			return nil, damaged
		}
		if addrs := p.Server.Addrs(); len(addrs) > 0 {
			t.Errorf("it accepts at %v already", addrs)
		}
		return upper(), nil
	}}
	pair.Test(t, cfg, func(t *testing.T, p *pair.Pair) {
		must(t, p.Restart(false))
		ask(t, p.Context, p.Conn, "the second")
		if err := p.Restart(true); !errors.Is(err, damaged) || p.Conn.Err() == nil {
			t.Errorf("the third starts with %v, the connection has %v", err, p.Conn.Err())
		}
	})
}

// What the first process has made durable is there for the second one, which knows no
// session.
// Matrix: KV-09
func TestAServerThatIsStartedAgainHasItsDisk(t *testing.T) {
	for _, power := range []bool{false, true} {
		pair.Test(t, pair.Config{Serve: upper()}, func(t *testing.T, p *pair.Pair) {
			p.Do(func() {
				k := p.ServerHost.Disk()
				fd, err := k.Open("/data/durable", uring.FileOptions{Write: true, Create: true})
				if err = errors.Join(err, k.Close(fd), k.SyncDir("/data")); err != nil {
					t.Error(err)
				}
			})
			first, conn := p.Server, p.Conn
			_, err := conn.Call(p.Context, control.NewMessage(1000, []byte("before"), nil))
			must(t, err)
			must(t, p.Restart(power))
			ask(t, p.Context, p.Conn, "behind")
			if p.Server == first || p.Conn == conn || conn.Err() == nil {
				t.Error("it is the same server, or the connection goes on")
			}
			p.Do(func() {
				if names, err := p.ServerHost.Disk().List("/data"); err != nil || !slices.Equal(names, []string{"durable"}) {
					t.Errorf("%v, %v", names, err)
				}
			})
		})
	}
}

// wrongs are what an audit has found.
type wrongs struct {
	mu    sync.Mutex
	found []string
}

func (w *wrongs) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, err.Error())
}

// Matrix: KV-13
func TestWhatACarelessServerLosesIsNoticed(t *testing.T) {
	for name, d := range map[string]defect{
		"the file is not synced":           {noSync: true},
		"the directory is not synced":      {noDirectory: true},
		"nor the one that it is in":        {noParent: true},
		"flipped bits are returned":        {noCRC: true},
		"it answers before it has written": {tooEarly: true},
	} {
		var w wrongs
		for seed := uint64(1); seed <= 40 && len(w.found) == 0; seed++ {
			s := serverOf(seed, d)
			s.Wrong = w.add
			pair.Simulate(t, s, func(w *pair.World) {
				w.Round()
				w.Flip("/notes", errDamaged)
			})
		}
		if len(w.found) == 0 {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
}

// Matrix: KV-13
func TestAFullDiskIsNoSecret(t *testing.T) {
	for _, silent := range []bool{false, true} {
		var w wrongs
		s := serverOf(1, defect{noErrors: silent})
		s.Wrong = w.add
		pair.Simulate(t, s, func(w *pair.World) {
			w.All(pair.Put, pair.Keys)
			w.Fill()
		})
		if silent != (len(w.found) > 0) {
			t.Errorf("silent %t: wrong is %q", silent, w.found)
		}
	}
}

// A server that may not refuse does not, one that lies about its keys is told, and one that
// does not start any more is wrong.
// Matrix: KV-13
func TestWhatAServerMustNotSayIsNoticed(t *testing.T) {
	var w wrongs
	s := serverOf(1, defect{})
	s.Wrong = w.add
	s.List = func(context.Context, *control.Conn) ([]string, error) { return nil, nil }
	pair.Simulate(t, s, func(world *pair.World) {
		world.All(pair.Put, 3)
		world.Disk(simnet.DiskOptions{Room: 1})
		world.All(pair.Put, 3)
		if len(w.found) > 0 {
			t.Errorf("on a full disk: %q", w.found)
		}
		world.Everything()
		world.MayRefuse(false)
		world.All(pair.Put, 1)
		world.Disk(simnet.DiskOptions{})
		world.Do(func() { world.ServerHost.Disk().Flip(book, 9, 1) })
		world.MustRestart(false)
	})
	for i, want := range []string{"the keys are", "key-000 is refused: ", "the server does not start: "} {
		if len(w.found) != 3 || !strings.HasPrefix(w.found[i], want) {
			t.Errorf("wrong is %q, want %q", w.found, want)
		}
	}
}

// All goes on until the server is ended, and the next process has what was acknowledged.
func TestAStormEndsWithTheServer(t *testing.T) {
	pair.Simulate(t, serverOf(1, defect{}), func(w *pair.World) {
		ended := 0
		w.Storm(100, func() { ended++ })
		w.MustRestart(true)
		w.Everything()
		if ended != 1 || len(w.Present()) == 0 {
			t.Errorf("ended %d times, and left %q", ended, w.Present())
		}
	})
}
