package cephx

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// agree fails the test unless both sides ended with the same secrets for mode.
func agree(t *testing.T, mode auth.Mode, kind Kind, c, s *auth.Result) {
	t.Helper()
	if got := key(t, c.SessionKey).kind(); got != kind || !bytes.Equal(c.SessionKey, s.SessionKey) {
		t.Errorf("session keys %x and %x, want one of kind %v", c.SessionKey, s.SessionKey, kind)
	}
	want := 0
	if mode == auth.Secure {
		want = connectionSecretSize
	}
	if len(c.ConnectionSecret) != want || !bytes.Equal(c.ConnectionSecret, s.ConnectionSecret) {
		t.Errorf("connection secrets of %d and %d bytes, want %d", len(c.ConnectionSecret), len(s.ConnectionSecret), want)
	}
	if c.Mode != mode || s.Mode != mode || c.Method != auth.Cephx || s.Method != auth.Cephx {
		t.Errorf("mode %v and %v, method %v and %v", c.Mode, s.Mode, c.Method, s.Method)
	}
	if c.GlobalID != s.GlobalID || c.Entity != s.Entity {
		t.Errorf("%v %d and %v %d", c.Entity, c.GlobalID, s.Entity, s.GlobalID)
	}
}

// Which kind a session key has follows from the kinds of the entity's key and of the
// service's secret: it is that of the weaker one.
// Matrix: AU-02
func TestLoginThenServiceInBothModesAndWithAllKinds(t *testing.T) {
	kinds := []Kind{AES, AES256K}
	for _, mode := range []auth.Mode{auth.CRC, auth.Secure} {
		for _, entity := range kinds {
			for _, service := range kinds {
				t.Run(fmt.Sprintf("%v, %v entity, %v secrets", mode, entity, service), func(t *testing.T) {
					c := newCluster(t, func(cfg *AuthorityConfig) { cfg.Ciphers = Ciphers{Service: service, Preferred: entity} })
					weaker := min(entity, service)
					cl := c.client(admin, only(mode))
					cres, sres := c.login(cl)
					agree(t, mode, entity, cres, sres)
					if sres.Entity != admin || sres.GlobalID == 0 || cl.GlobalID() != sres.GlobalID || sres.Caps != "allow *" {
						t.Errorf("logged in as %v %d, with %q", sres.Entity, sres.GlobalID, sres.Caps)
					}
					wantDue(t, cl, "what has not come along", 0)
					cres, sres = c.opens(cl, c.osd)
					agree(t, mode, weaker, cres, sres)
					if sres.Caps != "allow rwx" {
						t.Errorf("caps for osd %q", sres.Caps)
					}
					// The same for tickets that are asked for later, and for all together.
					cl.RenewAll()
					c.renew(cl)
					wantDue(t, cl, "still due", 0)
					delete(cl.tickets, serviceMgr)
					c.renew(cl)
					if k := cl.tickets[serviceMgr].sessionKey.kind(); k != weaker {
						t.Errorf("renewed session key %v", k)
					}
				})
			}
		}
	}
}

// Matrix: AU-14
func TestEachConnectionHasFreshKeys(t *testing.T) {
	c := newCluster(t)
	cl := c.client(admin, only(auth.Secure))
	seen := make(map[string]bool)
	for range 4 {
		res, _ := c.login(cl)
		osd, _ := c.opens(cl, c.osd)
		for _, secret := range [][]byte{res.SessionKey, res.ConnectionSecret[:40], osd.ConnectionSecret[:40]} {
			if seen[string(secret)] {
				t.Fatal("a secret came twice")
			}
			seen[string(secret)] = true
		}
	}
}

func TestDefaultModes(t *testing.T) {
	crcOnly, secure := []auth.Mode{auth.CRC}, []auth.Mode{auth.Secure, auth.CRC}
	crc := []auth.Mode{auth.CRC, auth.Secure}
	for _, tc := range []struct {
		own, peer wire.EntityType
		want      []auth.Mode
	}{
		{wire.Client, wire.Mon, secure}, {wire.Client, wire.OSD, crc}, {wire.Client, wire.Mgr, crc},
		{wire.Mon, wire.Mon, secure}, {wire.Mon, wire.Client, secure}, {wire.Mon, wire.OSD, secure},
		{wire.OSD, wire.Mon, crc}, {wire.OSD, wire.OSD, crc}, {wire.OSD, wire.Client, crc}, {wire.MDS, wire.Client, crc},
	} {
		if got := defaultModes(tc.own, tc.peer); !slices.Equal(got, tc.want) {
			t.Errorf("%v to %v: %v", tc.own, tc.peer, got)
		}
	}
	// What is configured counts in their place, but for modes that do not exist.
	c, odd := newCluster(t), []auth.Mode{3, auth.CRC, 0}
	c.mon.cfg.Modes = func(wire.EntityType) []auth.Mode { return odd }
	allowed, announced := c.mon.Modes(ctx, wire.Client, auth.Cephx)
	if _, other := c.mon.Modes(ctx, wire.Client, auth.None); !slices.Equal(allowed, crcOnly) || !slices.Equal(announced, crcOnly) || !slices.Equal(other, crcOnly) {
		t.Errorf("allowed %v, announced %v", allowed, announced)
	}
	x, err := c.client(admin, only(odd...)).Start(ctx, wire.Mon)
	must(t, err)
	if _, offered, _, err := x.Request(ctx); err != nil || !slices.Equal(offered, crcOnly) {
		t.Errorf("offered %v, %v", offered, err)
	}
}

func TestModeThatWasNotOfferedIsADowngrade(t *testing.T) {
	c := newCluster(t)
	cl := c.loggedIn(admin, only(auth.Secure))
	for _, peer := range []wire.EntityType{wire.Mon, wire.OSD} {
		for _, mode := range []auth.Mode{0, auth.CRC, 3} {
			e, _ := asked(t, cl, peer)
			wantErr(t, fmt.Sprintf("%v mode %v", peer, mode), second(e.Done(ctx, 1, mode, nil)), auth.ErrDowngrade)
		}
	}
}

func TestStepsOutOfOrderAreErrors(t *testing.T) {
	c, cl := newClient(t)
	challenge := appendServerChallenge(nil, 5)
	for peer, server := range map[wire.EntityType]*Server{wire.Mon: c.mon, wire.OSD: c.osd} {
		e, err := cl.Start(ctx, peer)
		must(t, err)
		wantErr(t, fmt.Sprintf("%v: challenge before the request", peer), second(e.ReplyMore(ctx, challenge)), errOutOfOrder)
		wantErr(t, fmt.Sprintf("%v: done before the request", peer), second(e.Done(ctx, 1, auth.CRC, nil)), errOutOfOrder)
		_, _, _, err = e.Request(ctx)
		must(t, err)
		wantErr(t, fmt.Sprintf("%v: done without a challenge", peer), second(e.Done(ctx, 1, auth.CRC, nil)), errOutOfOrder)
		if _, _, _, err := e.Request(ctx); !errors.Is(err, errOutOfOrder) {
			t.Errorf("%v: second request: %v", peer, err)
		}
		_, se, p := answered(t, cl, server, auth.CRC)
		if _, res, err := se.Handle(ctx, p); err != nil || res == nil {
			t.Fatal(err)
		}
		if _, res, err := se.Handle(ctx, p); !errors.Is(err, errOutOfOrder) || res != nil {
			t.Errorf("%v: the same answer again: %v", peer, err)
		}
	}
	e, _ := asked(t, cl, wire.Mon)
	_, err := e.ReplyMore(ctx, challenge)
	must(t, err)
	wantErr(t, "second challenge", second(e.ReplyMore(ctx, challenge)), errOutOfOrder)
}

// Matrix: AU-12
func TestAuthorizerForAnotherServiceOrEntityIsRefused(t *testing.T) {
	c, cl := newClient(t)
	other := c.loggedIn(wire.EntityName{Type: wire.Client, ID: "other"})

	mgr := cl.tickets[serviceMgr]
	osd := cl.tickets[serviceOSD]
	for name, tc := range map[string]struct {
		head authorizerHead
		key  Key
		want error
	}{
		"mgr authorizer":              {authorizerHead{cl.globalID, serviceMgr, mgr.ticket}, mgr.sessionKey, errForeignTicket},
		"mgr ticket called osd":       {authorizerHead{cl.globalID, serviceOSD, mgr.ticket}, mgr.sessionKey, errWrongKey},
		"id of another":               {authorizerHead{other.globalID, serviceOSD, osd.ticket}, osd.sessionKey, errForeignTicket},
		"ticket of another":           {authorizerHead{cl.globalID, serviceOSD, other.tickets[serviceOSD].ticket}, osd.sessionKey, errWrongKey},
		"session key of another":      {authorizerHead{cl.globalID, serviceOSD, osd.ticket}, mgr.sessionKey, errWrongKey},
		"secret id unknown":           {authorizerHead{cl.globalID, serviceOSD, ticket{99, osd.ticket.blob}}, osd.sessionKey, errUnknownSecret},
		"secret id of mon.":           {authorizerHead{cl.globalID, serviceOSD, ticket{monSecretID, osd.ticket.blob}}, osd.sessionKey, errUnknownSecret},
		"empty ticket":                {authorizerHead{cl.globalID, serviceOSD, ticket{2, nil}}, osd.sessionKey, wire.ErrMalformed},
		"ticket of odd size":          {authorizerHead{cl.globalID, serviceOSD, ticket{2, osd.ticket.blob[1:]}}, osd.sessionKey, wire.ErrMalformed},
		"service that does not exist": {authorizerHead{cl.globalID, 0x40, osd.ticket}, osd.sessionKey, errForeignTicket},
	} {
		p := authorizerOf(t, cl, tc.head, tc.key)
		if _, _, err := serving(t, c.osd, auth.CRC).Handle(ctx, p); !errors.Is(err, tc.want) || auth.Errno(err) != auth.EACCES {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerRefusesWhatItDoesNotSpeak(t *testing.T) {
	c := newCluster(t)
	login := appendLoginStart(nil, admin, 0)
	for name, tc := range map[string]struct {
		s *Server
		p []byte
	}{
		"empty":                {c.mon, nil},
		"mode 0":               {c.mon, []byte{0, 0, 0, 0}},
		"mode 20":              {c.mon, append([]byte{20}, login[1:]...)},
		"login at an osd":      {c.osd, login},
		"none authorizer":      {c.osd, append([]byte{1}, login[1:]...)},
		"login without a name": {c.mon, []byte{10}},
		"name of 5 KB":         {c.mon, appendLoginStart(nil, wire.EntityName{Type: 8, ID: string(make([]byte, 5000))}, 0)},
	} {
		e := serving(t, tc.s, auth.CRC)
		if _, res, err := e.Handle(ctx, tc.p); err == nil || res != nil || auth.Errno(err) != auth.EACCES {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.mon.Start(ctx, wire.Client, auth.None, auth.CRC); !errors.Is(err, auth.ErrNoMethod) {
		t.Error(err)
	}
	for _, m := range []auth.Mode{0, 3} {
		if _, err := c.mon.Start(ctx, wire.Client, auth.Cephx, m); !errors.Is(err, auth.ErrNoMode) {
			t.Error(err)
		}
	}
}

func TestMonitorsConnectToEachOtherAndToDaemons(t *testing.T) {
	c := newCluster(t)
	mon := c.client(wire.EntityName{Type: wire.Mon, ID: "a"}, func(cfg *ClientConfig) { cfg.Authority = c.authority })
	for peer, server := range map[wire.EntityType]*Server{wire.Mon: c.mon, wire.OSD: c.osd} {
		cres, sres := c.opens(mon, server)
		if sres.Entity != mon.name || sres.GlobalID != 0 || !bytes.Equal(cres.SessionKey, sres.SessionKey) {
			t.Errorf("%v: %v %d", peer, sres.Entity, sres.GlobalID)
		}
	}
	stranger := newKey(t, AES)
	fake, err := NewClient(ClientConfig{Name: mon.name, Key: stranger, Now: c.clock.Now, Rand: c.rand})
	must(t, err)
	if _, _, _, serr := connect(fake, c.mon, wires{}); !errors.Is(serr, errWrongKey) {
		t.Errorf("monitor with another key: %v", serr)
	}
	wantErr(t, "monitor without an authority", second(fake.Start(ctx, wire.OSD)), ErrNoTicket)
}

func TestAcceptHasTheLastWord(t *testing.T) {
	c, cl := newClient(t)
	refuse := func(peer wire.EntityType, name wire.EntityName) error {
		if peer != wire.Client || name != admin {
			t.Errorf("asked about %v as %v", peer, name)
		}
		return fmt.Errorf("not today: %w", &auth.Refused{Errno: auth.EPERM})
	}
	c.mon.cfg.Accept, c.osd.cfg.Accept = refuse, refuse
	for peer, server := range map[wire.EntityType]*Server{wire.Mon: c.mon, wire.OSD: c.osd} {
		if _, _, cerr, _ := connect(cl, server, wires{}); !errors.Is(cerr, &auth.Refused{Errno: auth.EPERM}) {
			t.Errorf("%v: %v", peer, cerr)
		}
	}
}

func TestTicketExpiry(t *testing.T) {
	c, cl := newClient(t)
	held := *cl.tickets[serviceOSD]
	show := func() error { return c.show(cl, &held) }
	c.clock.add(DefaultServiceTTL)
	wantErr(t, "client uses an expired ticket", second(cl.Start(ctx, wire.OSD)), ErrNoTicket)
	c.clock.add(defaultTicketGrace - time.Second)
	must(t, show())
	c.clock.add(time.Second)
	wantErr(t, "expired ticket", show(), errTicketExpired)
	c.osd.cfg.TicketGrace = -1
	must(t, show())
}
