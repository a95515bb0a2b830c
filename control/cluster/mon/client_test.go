package mon_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

var errNotKnown = errors.New("command not known")

func TestASessionHasTheMonmapAndRunsCommands(t *testing.T) {
	c := startCluster(t, time.Hour)
	j := c.join("client.admin", nil)
	if m := j.mon.MonMap(); m.FSID.String() != fsidText || m.Epoch != 1 || len(m.Mons) != 1 {
		t.Errorf("monmap %+v", m)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := j.mon.Command(ctx, map[string]any{"prefix": "whoami"})
	if err != nil || string(out.Data) != "client.admin" {
		t.Errorf("%+v, %v", out, err)
	}
	var refused *mon.CommandError
	_, err = j.mon.Command(ctx, map[string]any{"prefix": "make tea"})
	if !errors.As(err, &refused) || !errors.Is(err, syscall.EINVAL) || refused.Status != errNotKnown.Error() {
		t.Errorf("%v", err)
	}
	_, err = j.mon.Command(ctx, map[string]any{"prefix": "osd out", "ids": t.Deadline})
	if err == nil || !strings.Contains(err.Error(), `command "osd out": `) {
		t.Errorf("%v", err)
	}
	data := bytes.Repeat([]byte("data"), 1<<18)
	out, err = j.mon.CommandWith(ctx, map[string]any{"prefix": "echo", "ids": []int{1, 2}}, data)
	if err != nil || !bytes.Equal(out.Data, data) || out.Status != "[1 2]" {
		t.Errorf("%q and %d bytes came back, %d went along: %v", out.Status, len(out.Data), len(data), err)
	}
	i := j.mon.Conn().Info()
	if i.Auth != auth.Cephx || i.Mode != auth.Secure {
		t.Errorf("negotiated %v, %v", i.Auth, i.Mode)
	}
}

// The data of a command that is given up while it is being written belongs to the caller.
func TestTheDataOfACommandIsTheCallersOnceItReturns(t *testing.T) {
	c := startCluster(t, time.Hour)
	c.modes = []auth.Mode{auth.CRC} // the other one writes a copy
	j := c.join("client.admin", nil)
	stand, came := make(chan struct{}), make(chan []byte, 1)
	stop := sync.OnceFunc(func() { close(stand) })
	t.Cleanup(stop)
	spy := func(m *control.Message) {
		if len(m.Data) > 0 {
			came <- bytes.Clone(m.Data[:4])
		}
	}
	c.spy.Store(&spy)
	c.mon.Core(0).Post(&loop.Task{Run: func(*loop.Core) { <-stand }}) // reads nothing
	data := bytes.Repeat([]byte("data"), 6<<20)                       // more than a socket takes
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		defer cancel()
		eventually(t, "a write under way", func() bool {
			s, err := j.mon.Conn().Stats()
			return err != nil || s.IO.BytesOut > uint64(len(data))
		})
	})
	defer writing.Wait()
	if _, err := j.mon.CommandWith(ctx, map[string]any{"prefix": "echo"}, data); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	copy(data[len(data)-4:], "else")
	copy(data, "else")
	stop()
	if got := soon(t, "a command", came); string(got) != "data" {
		t.Errorf("the monitor got %q", got)
	}
}

// A command whose session is lost is sent again on the next one, and answered
// once.
func TestCommandsSurviveALostSession(t *testing.T) {
	c := startCluster(t, time.Hour)
	j := c.join("client.admin", nil)
	id := j.keys.GlobalID()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 5 {
		first := j.mon.Conn()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				out, err := j.mon.Command(ctx, map[string]any{"prefix": "whoami"})
				if err != nil || string(out.Data) != "client.admin" {
					t.Errorf("%+v, %v", out, err)
				}
			})
		}
		for _, conn := range c.mon.Conns() {
			conn.MarkDown()
		}
		all.Wait()
		eventually(t, "another session", func() bool { n := j.mon.Conn(); return n != nil && n != first })
	}
	if err := j.mon.Err(); j.keys.GlobalID() != id || err != nil {
		t.Errorf("global id %d became %d; with a session: %v", id, j.keys.GlobalID(), err)
	}
}

// A subscription that finds the queue of the connection full is sent when there is room.
func TestMapsAreFollowedThoughTheQueueWasFull(t *testing.T) {
	c := startCluster(t, time.Hour)
	c.queue = 2
	j := c.join("client.admin", nil)
	const last = 10
	came := c.subscribed(last)
	stand := make(chan struct{})
	j.m.Core(0).Post(&loop.Task{Run: func(*loop.Core) { <-stand }})
	for epoch := range uint32(last + 1) {
		check(t, j.mon.FollowOSDMap(epoch))
	}
	close(stand)
	eventually(t, "the last subscription", func() bool { c.clock.pass(time.Second); return came() })
}

// subscribed returns a function that says whether maps were asked for, from an epoch on, meanwhile.
func (c *cluster) subscribed(epoch uint64) func() bool {
	want, came := binary.LittleEndian.AppendUint64([]byte("osdmap"), epoch), new(atomic.Bool)
	spy := func(m *control.Message) {
		if bytes.Contains(m.Front, want) {
			came.Store(true)
		}
	}
	c.spy.Store(&spy)
	return came.Load
}

// The maps that have come are not asked for again: there may be many.
func TestTheNextSessionFollowsBehindTheMapsThatHaveCome(t *testing.T) {
	c := startCluster(t, time.Hour)
	maps := make(chan uint32, 8)
	j := c.join("client.admin", nil, &control.Dispatcher{ByType: map[uint16]func(*control.Conn, *control.Message){
		41: func(_ *control.Conn, m *control.Message) {
			got, err := mon.DecodeOSDMaps(m.Front)
			check(t, err)
			maps <- got.Epoch()
		},
	}})
	check(t, j.mon.FollowOSDMap(3))
	for _, conn := range c.mon.Conns() {
		check(t, conn.Send(control.NewMessage(41, captured.OSDMaps(make([]byte, 16), 7, []byte("7"), nil), nil)))
	}
	if epoch := <-maps; epoch != 7 {
		t.Errorf("epoch %d is left to the next dispatcher", epoch)
	}
	came := c.subscribed(8)
	for _, conn := range c.mon.Conns() {
		conn.MarkDown()
	}
	eventually(t, "a subscription from epoch 8", came)
}

// A monitor of another cluster, which has come to the address, is left at once.
func TestAMonitorOfAnotherClusterIsNone(t *testing.T) {
	c := startCluster(t, time.Hour)
	j := c.join("client.admin", nil)
	c.fsid.Store(&mon.FSID{7})
	for _, conn := range c.mon.Conns() {
		conn.MarkDown()
	}
	eventually(t, "the reason", func() bool {
		err := j.mon.Err()
		return err != nil && strings.Contains(err.Error(), "have 1 of "+fsidText)
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	c := startCluster(t, time.Hour)
	j := c.join("client.admin", nil)
	// Nobody answers this one.
	done := make(chan error, 1)
	go func() {
		_, err := j.mon.NewestOSDMap(context.Background())
		done <- err
	}()
	conn := j.mon.Conn()
	j.mon.Close()
	state := conn.State()
	if err := soon(t, "the end of the wait", done); !errors.Is(err, mon.ErrClosed) || state != control.StateClosing {
		t.Errorf("%v; the connection was %v", err, state)
	}
	if _, err := j.mon.NewestOSDMap(t.Context()); err == nil || strings.Contains(err.Error(), " to ") {
		t.Errorf("without a session: %v", err)
	}
	j.mon.Close() // a second time
	if err := j.mon.Open(t.Context(), j.m); !errors.Is(err, mon.ErrConfig) {
		t.Errorf("opened again: %v", err)
	}
}

// A monitor that is frozen still accepts connections. Who waits for it is told which it is, before an attempt has failed, too.
func TestASilentMonitorIsToldAlikeWhoeverGivesUpFirst(t *testing.T) {
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer silent.Close()
	addr := wire.Addr{Type: wire.AddrMsgr2, AddrPort: silent.Addr().(*net.TCPAddr).AddrPort()}
	const soon, late = 50 * time.Millisecond, time.Hour
	for i, limits := range [][2]time.Duration{{late, late}, {soon, late}, {late, soon}} { // the caller, the messenger, the client
		m := messenger(t, control.Config{Name: name(t, "client.admin"), Timeouts: control.Timeouts{Handshake: limits[0]}})
		cl, err := mon.NewClient(mon.Config{Mons: []wire.Addr{addr}, Timeout: limits[1], Retry: late})
		check(t, err)
		check(t, m.Start(cl.Dispatcher()))
		ctx, cancel := context.WithCancelCause(t.Context())
		opened := make(chan error, 1)
		go func() { opened <- cl.Open(ctx, m) }()
		if i == 0 {
			conn, err := silent.Accept()
			check(t, err)
			defer conn.Close()
		} else {
			eventually(t, "an attempt that failed", func() bool { return cl.Err() != nil })
		}
		conn := cl.Conn()
		cancel(errNotKnown)
		if err := <-opened; conn != nil || !errors.Is(err, mon.ErrNoAnswer) || !errors.Is(err, errNotKnown) || !strings.Contains(err.Error(), addr.String()) {
			t.Errorf("%d gives up first: %v, want ErrNoAnswer with the address", i, err)
		}
	}
}

// Of several monitors one that hangs costs a part of the limit, and each gets all of it in the end.
func TestAMonitorThatHangsDoesNotKeepUsFromTheOthersForLong(t *testing.T) {
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	defer silent.Close()
	c, addr := startCluster(t, time.Hour), wire.Addr{Type: wire.AddrMsgr2, AddrPort: silent.Addr().(*net.TCPAddr).AddrPort()}
	c.before, c.limit = []wire.Addr{addr}, 8*time.Second
	begin := time.Now()
	if c.join("client.admin", nil); time.Since(begin) > 7*time.Second {
		t.Errorf("a session after %v", time.Since(begin))
	}
	m := messenger(t, control.Config{Name: name(t, "client.admin")})
	cl, err := mon.NewClient(mon.Config{Mons: []wire.Addr{addr, addr}, Timeout: 160 * time.Millisecond, Retry: 1})
	check(t, err)
	check(t, m.Start(cl.Dispatcher()))
	begin = time.Now()
	go func() { _ = cl.Open(t.Context(), m) }()
	for range 6 { // one of them is that of the first client
		conn, err := silent.Accept()
		check(t, err)
		defer conn.Close()
	}
	cl.Close()
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("four attempts in %v", took)
	}
}

func TestOpenSaysWhyThereIsNoSession(t *testing.T) {
	c := startCluster(t, time.Hour)
	key, err := cephx.NewKey(cephx.AES, nil, time.Now())
	check(t, err)
	keys, err := cephx.NewClient(cephx.ClientConfig{Name: name(t, "client.admin"), Key: key})
	check(t, err)
	nobody := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:1")}
	for what, mons := range map[string][]wire.Addr{"refused by all": {c.addr, c.addr}, "one does not answer": {c.addr, nobody}} {
		m := messenger(t, control.Config{Name: name(t, "client.admin"), Auth: control.Auth{Client: keys}})
		cl, err := mon.NewClient(mon.Config{Mons: mons, Auth: keys, Retry: time.Millisecond})
		check(t, err)
		check(t, m.Start(cl.Dispatcher()))
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan error, 1)
		go func() { opened <- cl.Open(ctx, m) }()
		if mons[1] == nobody { // it may come back, so Open waits
			eventually(t, "attempts", func() bool { st, err := m.Stats(); return err == nil && st.Counters.Closed > 6 })
			eventually(t, "a refusal", func() bool { return errors.Is(cl.Err(), control.ErrAuth) })
			select {
			case err := <-opened:
				t.Errorf("%s: gave up: %v", what, err)
			default:
			}
			cancel()
			if err := <-opened; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := cl.NewestOSDMap(t.Context()); !errors.Is(err, mon.ErrClosed) {
				t.Errorf("%s: the client goes on: %v", what, err)
			}
			continue
		}
		err = soon(t, "the end of Open", opened)
		cancel()
		var refused *auth.Refused
		if !errors.Is(err, control.ErrAuth) || !errors.As(err, &refused) || refused.Errno != auth.EACCES || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Tickets are renewed on the session that there is, before they expire.
// Matrix: AU-11
func TestTicketsAreRenewedUnderARunningSession(t *testing.T) {
	const ttl = time.Minute
	c := startCluster(t, ttl)
	j := c.join("client.admin", nil)
	session := j.mon.Conn()
	fresh := func() bool { return !j.keys.RenewAt().IsZero() }
	for round := range 5 {
		before := j.osdTicket().Expires
		c.clock.pass(50 * time.Second) // due, not expired
		eventually(t, "a renewal", fresh)
		if now := j.osdTicket().Expires; !now.After(before) {
			t.Fatalf("round %d: the ticket for osds expires at %v, before the renewal at %v", round, now, before)
		}
	}
	if j.mon.Conn() != session {
		t.Error("the session was lost")
	}
	// The auth ticket, too: its life is 72 times as long.
	c.clock.pass(60 * ttl)
	eventually(t, "a renewal of all", fresh)
	if j.mon.Conn() != session {
		t.Error("the session was lost with the auth ticket")
	}
	c.clock.pass(100 * ttl)
	eventually(t, "a renewal of all that has expired", fresh)
	if j.mon.Conn() != session {
		t.Error("the session was lost with the expired auth ticket")
	}
	// What the monitors have forgotten cannot be renewed: a new login brings all.
	c.clock.pass(1000 * ttl)
	eventually(t, "a new login", fresh)
	eventually(t, "another session", func() bool { n := j.mon.Conn(); return n != nil && n != session })
	eventually(t, "the end of the first", func() bool { return session.State() == control.StateClosing })
}

// A monitor that does not answer a request for new tickets is given up, and the next session has them.
func TestASessionThatRenewsNoTicketIsGivenUp(t *testing.T) {
	c := startCluster(t, time.Minute)
	j := c.join("client.admin", nil)
	session := j.mon.Conn()
	var asked atomic.Bool
	spy := func(m *control.Message) { asked.Store(asked.Load() || m.Type == typeAuth) }
	c.spy.Store(&spy)
	c.deaf.Store(true)
	c.clock.pass(50 * time.Second) // due, not expired
	eventually(t, "a request", asked.Load)
	c.deaf.Store(false)
	c.clock.pass(patience)
	eventually(t, "another session", func() bool { n := j.mon.Conn(); return n != nil && n != session })
}

// The monitors throw the secrets of services away: the monmap says so, and a client has
// new tickets, and a daemon new secrets, long before the old ones end. The ids of secrets
// begin anew.
// Matrix: AU-11
func TestTicketsAreRenewedWhenTheMonitorsThrowSecretsAway(t *testing.T) {
	c := startCluster(t, time.Hour)
	osd, client, store := c.joinBoth()
	session := client.mon.Conn()
	expires := client.keys.Tickets()[0].Expires
	check(t, c.authority.Renew())
	current, _ := c.authority.Secret(wire.OSD, 2)
	fetched := func() bool { k, _ := store.Secret(wire.OSD, 2); return bytes.Equal(k.Secret(), current.Secret()) }
	renewed := func() bool { return !client.keys.Tickets()[0].Expires.Equal(expires) }
	if fetched() || renewed() {
		t.Fatal("renewed before anybody said so")
	}
	for _, j := range []*member{osd, client} {
		_, err := j.mon.Command(t.Context(), map[string]any{"prefix": "wipe"})
		check(t, err)
	}
	eventually(t, "new secrets", fetched)
	eventually(t, "new tickets", renewed)
	if client.mon.Conn() != session {
		t.Error("the session was lost")
	}
}

func (c *cluster) joinBoth() (osd, client *member, secrets *cephx.SecretStore) {
	secrets = cephx.NewSecretStore(wire.OSD)
	osd, client = c.join("osd.0", secrets), c.join("client.admin", nil)
	eventually(c.t, "the secrets", func() bool { return !osd.keys.RenewAt().IsZero() })
	return osd, client, secrets
}

func (j *member) osdTicket() (found cephx.TicketInfo) {
	for _, i := range j.keys.Tickets() {
		if i.Service == wire.OSD {
			found = i
		}
	}
	return found
}
