package cephx

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func TestRotationSchedule(t *testing.T) {
	var s rotatingSecrets
	ttl := time.Hour
	rotate := func(at time.Duration, want bool) {
		t.Helper()
		before := s.newest
		must(t, s.rotate(t0.Add(at), ttl, AES, seeded(1)))
		if changed := s.newest != before; changed != want {
			t.Errorf("at %v: changed %v", at, changed)
		}
	}
	expect := func(first uint64, expires ...time.Duration) {
		t.Helper()
		var ids []uint64
		for i, d := range expires {
			ids = append(ids, first+uint64(i))
			if got := s.list[i].expires; !got.Equal(t0.Add(d)) {
				t.Errorf("secret %d expires after %v, want %v", s.list[i].id, got.Sub(t0), d)
			}
		}
		var got []uint64
		for _, e := range s.list {
			got = append(got, e.id)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("ids %v, want %v", got, ids)
		}
	}
	rotate(0, true)
	expect(1, ttl, 2*ttl, 3*ttl)
	rotate(2*ttl-1, false)
	if e, limit := s.issuing(); e.id != 2 || !limit.Equal(t0.Add(3*ttl)) {
		t.Errorf("tickets are made with secret %d until %v", e.id, limit)
	}
	rotate(2*ttl, true)
	expect(2, 2*ttl, 3*ttl, 4*ttl)
	if e, limit := s.issuing(); e.id != 3 || !limit.Equal(t0.Add(4*ttl)) {
		t.Errorf("after the current one expired: %d until %v", e.id, limit)
	}
	// After a long sleep the secrets are all new or useless.
	rotate(100*ttl, true)
	expect(4, 4*ttl, 102*ttl, 103*ttl)
	if e, _ := s.issuing(); e.id != 5 {
		t.Errorf("after the sleep: %d", e.id)
	}
}

// Matrix: AU-11
func TestTicketsOfPreviousCurrentAndNextSecretAreAccepted(t *testing.T) {
	c := newCluster(t)
	c.osd.cfg.TicketGrace = -1
	cl := c.loggedIn(admin)
	accepted := func() error { return c.show(cl, cl.tickets[serviceOSD]) }
	// The ticket was made with secret 2 of 1, 2, 3.
	must(t, accepted())
	c.clock.add(2 * DefaultServiceTTL) // 2, 3, 4
	must(t, accepted())
	c.clock.add(DefaultServiceTTL) // 3, 4, 5
	wantErr(t, "older than the previous secret", accepted(), errUnknownSecret)

	// A daemon that has not fetched the newest secrets yet still takes tickets of its next.
	c = newCluster(t)
	store := NewSecretStore(wire.OSD)
	secrets, err := c.authority.rotating(serviceOSD)
	must(t, err)
	store.update(secrets)
	c.osd.cfg.Secrets = store
	c.clock.add(2 * DefaultServiceTTL) // the authority has 2, 3, 4 and uses 3; the store has 1, 2, 3
	cl = c.client(admin)
	c.login(cl)
	if id := cl.tickets[serviceOSD].ticket.secretID; id != 3 {
		t.Fatalf("ticket made with %d", id)
	}
	must(t, accepted())
	if !store.needRefresh(c.clock.Now()) {
		t.Error("the store does not want new secrets")
	}
	c.clock.add(DefaultServiceTTL)
	c.login(cl) // made with 4
	wantErr(t, "newer than the store", accepted(), errUnknownSecret)
}

func TestTicketsDoNotOutliveTheNewestSecret(t *testing.T) {
	c := newCluster(t)
	var s rotatingSecrets
	must(t, s.rotate(t0, 10*time.Minute, AES, c.rand))
	c.authority.restore(serviceOSD, s)
	tk, g, err := c.authority.issueFor(serviceOSD, admin, 1, AES)
	must(t, err)
	if g.validity != 30*time.Minute || tk.secretID != 2 {
		t.Errorf("lives %v under secret %d", g.validity, tk.secretID)
	}
}

func TestDaemonFetchesRotatingSecrets(t *testing.T) {
	c := newCluster(t)
	store := NewSecretStore(wire.OSD)
	daemon := c.loggedIn(osd0, func(cfg *ClientConfig) { cfg.Secrets = store })
	fetch := func(when string) (reply []byte) {
		t.Helper()
		if !daemon.RenewAt().IsZero() {
			t.Errorf("%s: no secrets are wanted", when)
		}
		reply = c.renewal(daemon)
		if whole, err := daemon.HandleReply(reply); err != nil || !whole || store.needRefresh(c.clock.Now()) {
			t.Fatalf("%s: %v, %v", when, whole, err)
		}
		return reply
	}
	reply := fetch("at first")
	daemon.RenewAll()
	c.renew(daemon)
	fetch("when the monitors have thrown them away")
	daemon.RenewAll()
	for range 2 { // the answers about tickets, and about secrets, may have been under way when the monitors did so again
		reply := c.renewal(daemon)
		daemon.RenewAll()
		if whole, err := daemon.HandleReply(reply); err != nil || whole {
			t.Errorf("answered before: %v, %v", whole, err)
		}
		c.renew(daemon)
	}
	fetch("once more")
	c.clock.add(50 * time.Minute)
	c.renew(daemon)
	if at := daemon.RenewAt(); !at.Equal(c.clock.Now().Add(45 * time.Minute)) {
		t.Errorf("the next tickets are due at %v", at)
	}
	c.clock.add(45 * time.Minute)
	c.renew(daemon)
	if at := daemon.RenewAt(); !at.Equal(t0.Add(2 * time.Hour)) {
		t.Errorf("the next secrets are due at %v", at)
	}
	c.clock.add(30 * time.Minute)
	// The monitor's clock is behind: it has no newer secrets yet.
	if request, err := daemon.RenewRequest(); err != nil || !bytes.Equal(request, []byte{0, 4}) {
		t.Errorf("%x, %v", request, err)
	}
	if whole, err := daemon.HandleReply(reply); err != nil || whole {
		t.Errorf("old secrets: %v, %v", whole, err)
	}
	fetch("when the current one has expired")

	c.osd.cfg.Secrets = store
	cl := c.loggedIn(admin)
	c.opens(cl, c.osd)
	if _, ok := store.Secret(wire.Mgr, 2); ok {
		t.Error("secrets for another service")
	}
	wantErr(t, "a client got rotating secrets", second(c.last.Handle([]byte{0, 4})), errForeignTicket)
	wantErr(t, "another entity opened them", second(cl.openSecrets(reply)), errWrongKey)
}

// A monitor that has no newer secrets is asked once in a login: the keeper of the session pauses.
func TestALoginOfMsgr1AsksOnceForWhatIsNotGiven(t *testing.T) {
	c := newCluster(t)
	old, err := c.authority.rotating(serviceOSD)
	must(t, err)
	c.clock.add(3 * time.Hour) // the old secrets have expired
	daemon := c.client(osd0, func(cfg *ClientConfig) { cfg.Secrets = NewSecretStore(wire.OSD) })
	entity, _ := c.ring.Lookup(osd0)
	var s *Session
	asked := 0
	_, err = daemon.Login(func(protocol auth.Method, p []byte) (uint64, []byte, error) {
		if asked++; asked > 5 {
			return 0, nil, errors.New("asked again and again")
		}
		if protocol == 0 {
			s, p, err = c.authority.NewSession(p)
			return s.GlobalID(), p, err
		}
		if bytes.Equal(p, []byte{0, 4}) {
			p, err = entity.Key.sealPrefixed(useRotating, appendReplyHeader(nil, opRotatingKey), old.appendTo(nil), c.rand)
			return s.GlobalID(), p, err
		}
		p, err = s.Handle(p)
		return s.GlobalID(), p, err
	})
	if err != nil || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// Matrix: AU-10
func TestGlobalIDIsKeptAsLongAsTheOldTicketIsTaken(t *testing.T) {
	c := newCluster(t)
	cl := c.client(admin)
	first, _ := c.login(cl)
	osd := cl.tickets[serviceOSD]
	second, sres := c.login(cl)
	if first.GlobalID != second.GlobalID || sres.GlobalID != first.GlobalID {
		t.Errorf("id %d became %d", first.GlobalID, second.GlobalID)
	}
	if cl.tickets[serviceOSD] == osd {
		t.Error("tickets were not renewed")
	}
	// The old ticket may be past its time as long as its secret exists.
	c.clock.add(defaultAuthTTL + time.Minute)
	third, _ := c.login(cl)
	if third.GlobalID != first.GlobalID {
		t.Errorf("id %d became %d", first.GlobalID, third.GlobalID)
	}
	c.clock.add(10 * defaultAuthTTL) // the secret of the ticket is gone
	other, _ := c.login(cl)
	if due := cl.due(); other.GlobalID == first.GlobalID || cl.GlobalID() != other.GlobalID || due != 0 {
		t.Errorf("id %d then %d, due: %v", first.GlobalID, other.GlobalID, due)
	}
	// By messages there is one try for each connection: the next login asks for a new id.
	byMessages := func() (uint64, error) {
		var s *Session
		return cl.Login(func(protocol auth.Method, p []byte) (_ uint64, reply []byte, err error) {
			if protocol == 0 {
				s, reply, err = c.authority.NewSession(p)
			} else if reply, err = s.Handle(p); err != nil {
				err = &auth.Refused{Errno: auth.Errno(err)}
			}
			return s.GlobalID(), reply, err
		})
	}
	if again, err := byMessages(); err != nil || again != other.GlobalID {
		t.Errorf("by messages: id %d became %d, %v", other.GlobalID, again, err)
	}
	c.clock.add(10 * defaultAuthTTL)
	if _, err := byMessages(); !errors.Is(err, errLoginNeeded) || errors.Is(err, &auth.Refused{}) {
		t.Errorf("by messages, with a ticket that nobody can open: %v", err)
	}
	if last, err := byMessages(); err != nil || last == other.GlobalID || cl.due() != 0 {
		t.Errorf("by messages, without that ticket: id %d, %v, due: %v", last, err, cl.due())
	}
	// A monitor of Ceph closes the connection behind its refusal.
	if _, err := cl.newLogin().again(auth.EACCES, errReclaim); err != nil || cl.newLogin().globalID != 0 {
		t.Errorf("the next login claims id %d again, %v", cl.newLogin().globalID, err)
	}
}

// challenged is a session that has challenged an entity, and the proof that it waits for.
func (c *cluster) challenged(name wire.EntityName, id, ours uint64) (s *Session, proof uint64) {
	c.t.Helper()
	e, ok := c.ring.Lookup(name)
	if !ok {
		c.t.Fatal("no such entity")
	}
	s = &Session{a: c.authority}
	p, err := s.start(name, id)
	must(c.t, err)
	challenge, err := decodeServerChallenge(p)
	must(c.t, err)
	proof, err = e.Key.proof(challenge, ours)
	must(c.t, err)
	return s, proof
}

// claim runs a login with a claimed global id and a chosen request.
func (c *cluster) claim(id uint64, name wire.EntityName, version uint8, old ticket) (*Session, []byte, error) {
	c.t.Helper()
	s, proof := c.challenged(name, id, 77)
	reply, err := s.Handle(proving(authenticate{version, 77, proof, old, serviceAuth}))
	return s, reply, err
}

// Matrix: AU-10
func TestGlobalIDIsNotGivenToAnybodyElse(t *testing.T) {
	c := newCluster(t)
	cl, other := c.client(admin), c.client(wire.EntityName{Type: wire.Client, ID: "other"})
	c.login(cl)
	c.login(other)
	mine, theirs := cl.tickets[serviceAuth].ticket, other.tickets[serviceAuth].ticket
	altered := ticket{mine.secretID, slices.Clone(mine.blob)}
	altered.blob[20] ^= 1
	for name, tc := range map[string]struct {
		id      uint64
		as      wire.EntityName
		version uint8
		old     ticket
		want    error
	}{
		"own ticket":                    {cl.globalID, admin, 3, mine, nil},
		"no ticket":                     {cl.globalID, admin, 3, ticket{}, errReclaim},
		"no ticket, version 1":          {cl.globalID, admin, 1, ticket{}, errReclaim},
		"no ticket, version 2":          {cl.globalID, admin, 2, ticket{}, errReclaim},
		"id of another":                 {cl.globalID, other.name, 3, theirs, errReclaim},
		"id and ticket of another":      {cl.globalID, other.name, 3, mine, errReclaim},
		"altered ticket":                {cl.globalID, admin, 3, altered, errReclaim},
		"ticket of an unknown secret":   {cl.globalID, admin, 3, ticket{9, mine.blob}, errUnknownSecret},
		"ticket under the key of mon.":  {cl.globalID, admin, 3, ticket{monSecretID, mine.blob}, errUnknownSecret},
		"service ticket":                {cl.globalID, admin, 3, cl.tickets[serviceOSD].ticket, errReclaim},
		"id that was never given":       {1 << 40, admin, 3, ticket{}, errReclaim},
		"new id":                        {0, admin, 3, ticket{}, nil},
		"new id, version 1":             {0, admin, 1, ticket{}, nil},
		"new id with ticket":            {0, admin, 3, mine, &auth.Refused{Errno: auth.EINVAL}},
		"new id with ticket, version 2": {0, admin, 2, mine, nil},
	} {
		s, reply, err := c.claim(tc.id, tc.as, tc.version, tc.old)
		if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.loggedIn != (tc.want == nil) {
			t.Errorf("%s: logged in %v", name, s.loggedIn)
		}
		r := wire.NewReader(reply)
		readReplyHeader(r, opAuthSessionKey)
		if list := readIssued(r); s.loggedIn && list[0].encrypted != (tc.id != 0) { // who claims an id has the old session key
			t.Errorf("%s: ticket encrypted %v", name, list[0].encrypted)
		}
	}
}

func TestSessionRefusesRequestsBeforeTheLogin(t *testing.T) {
	c, cl := newClient(t)
	delete(cl.tickets, serviceOSD)
	p, err := cl.RenewRequest()
	must(t, err)
	for _, payload := range [][]byte{p, {0, 4}, {0, 4}, {0, 1}, {0, 2}, {0}, nil} {
		s := &Session{a: c.authority}
		if _, err := s.Handle(payload); err == nil {
			t.Errorf("%x accepted", payload)
		}
		for _, name := range []wire.EntityName{admin, osd0} { // who is known, and has proved nothing
			s, _ := c.challenged(name, 0, 1)
			if reply, err := s.Handle(payload); err == nil || len(payload) > 2 && !errors.Is(err, errOutOfOrder) || reply != nil {
				t.Errorf("%x of %v accepted without a proof: %v", payload, name, err)
			}
		}
	}
	if _, err := c.last.Handle(le.AppendUint16(nil, 0x0800)); auth.Errno(err) != auth.EINVAL {
		t.Errorf("unknown request: %v", err)
	}
	// With the session of another entity the ticket is of no use.
	c.loggedIn(wire.EntityName{Type: wire.Client, ID: "other"})
	wantErr(t, "ticket of another", second(c.last.Handle(p)), errForeignTicket)
}

func TestMAuthNegotiatesCephxOnly(t *testing.T) {
	c := newCluster(t)
	p := wire.AppendU32s([]byte{1}, []uint32{1})
	p = le.AppendUint64(admin.AppendTo(p), 0)
	if _, _, err := c.authority.NewSession(p); auth.Errno(err) != auth.EOPNOTSUPP {
		t.Errorf("only none offered: %v", err)
	}
}

func TestSecureLoginMustLeaveRoomForTheSecret(t *testing.T) {
	c := newCluster(t)
	s, proof := c.challenged(admin, 0, 1)
	if _, _, err := s.handleLogin(proving(authenticate{1, 1, proof, ticket{}, 0}), auth.Secure); auth.Errno(err) != auth.EINVAL {
		t.Error(err)
	}
}

func TestConfigErrors(t *testing.T) {
	c := newCluster(t)
	k, _ := c.ring.Lookup(admin)
	for name, err := range map[string]error{
		"client without name": second(NewClient(ClientConfig{Key: k.Key})),
		"client without key":  second(NewClient(ClientConfig{Name: admin})),
		"odd services":        second(NewClient(ClientConfig{Name: admin, Key: k.Key, Services: 0x40})),
		"no entities":         second(NewAuthority(AuthorityConfig{})),
		"negative ttl":        second(NewAuthority(AuthorityConfig{Entities: c.ring, AuthTTL: -1})),
		"no secrets":          second(NewServer(ServerConfig{Own: wire.OSD})),
		"client as service":   second(NewServer(ServerConfig{Own: wire.Client, Secrets: c.authority})),
		"osd with authority":  second(NewServer(ServerConfig{Own: wire.OSD, Authority: c.authority})),
		"no own type":         second(NewServer(ServerConfig{Secrets: c.authority})),
	} {
		if !errors.Is(err, errConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := ServerConfig{Own: wire.OSD, Secrets: c.authority, Rand: script(), Now: c.clock.Now}
	s, err := NewServer(broken)
	must(t, err)
	cl := c.loggedIn(admin)
	if _, _, _, serr := connect(cl, s, wires{}); serr == nil {
		t.Error("a server without random numbers accepts")
	}
}

func second[T any](_ T, err error) error { return err }
