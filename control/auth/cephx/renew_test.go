package cephx

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// renew runs one renewal over the last session.
func (c *cluster) renew(cl *Client) {
	c.t.Helper()
	if whole, err := cl.HandleReply(c.renewal(cl)); err != nil || !whole {
		c.t.Fatal(whole, err)
	}
}

// renewal is the reply of the last session to a client that has something to renew.
func (c *cluster) renewal(cl *Client) (reply []byte) {
	c.t.Helper()
	p, err := cl.RenewRequest()
	must(c.t, err)
	if p == nil {
		c.t.Fatal("nothing to renew")
	}
	reply, err = c.last.Handle(p)
	must(c.t, err)
	return reply
}

// Matrix: AU-11
func TestTicketsAreRenewedBeforeTheyExpire(t *testing.T) {
	c := newCluster(t)
	cl := c.client(admin)
	if due := cl.due(); due != defaultServices|serviceAuth {
		t.Errorf("before the login: %v", due)
	}
	wantErr(t, "before the login", second(cl.RenewRequest()), errLoginNeeded)
	c.login(cl)
	if p, err := cl.RenewRequest(); p != nil || err != nil {
		t.Errorf("nothing is due: %x %v", p, err)
	}
	if at := cl.RenewAt(); !at.Equal(t0.Add(45 * time.Minute)) {
		t.Errorf("renew at %v", at)
	}
	c.clock.add(45*time.Minute - 1)
	wantDue(t, cl, "too early", 0)
	c.clock.add(1)
	wantDue(t, cl, "due", defaultServices)
	if !cl.RenewAt().IsZero() {
		t.Error("renew at a later time although due")
	}
	old := cl.tickets[serviceOSD].ticket
	c.renew(cl)
	wantDue(t, cl, "after the renewal", 0)
	if string(cl.tickets[serviceOSD].ticket.blob) == string(old.blob) {
		t.Error("same ticket")
	}
	c.opens(cl, c.osd)
	c.clock.add(defaultAuthTTL)
	wantErr(t, "with a ticket that has expired", second(cl.newAuthorizer(serviceOSD)), ErrNoTicket)
	c.renew(cl)
	wantDue(t, cl, "after all have expired", 0)
}

func TestMissingTicketsTakeAnExtraRound(t *testing.T) {
	c, cl := newClient(t)
	was := cl.GlobalID()
	delete(c.authority.secrets, serviceAuth) // so that it gives another id: the tickets of the old one are of no use
	_, sres, cerr, serr := connect(cl, c.mon, lastReply(func(p []byte) []byte {
		// A monitor that sends no further tickets along: the last blob is empty.
		r := wire.NewReader(p)
		readReplyHeader(r, opAuthSessionKey)
		readIssued(r)
		r.Blob()
		return append(append([]byte(nil), p[:len(p)-r.Len()]...), 0, 0, 0, 0)
	}))
	must(t, errors.Join(cerr, serr))
	c.last = sres.Session.(*Session)
	if due := cl.due(); due != defaultServices || cl.GlobalID() == was {
		t.Fatalf("id %d, which was %d, due: %v", cl.GlobalID(), was, due)
	}
	wantErr(t, "without a ticket", second(cl.Start(ctx, wire.OSD)), ErrNoTicket)
	c.renew(cl)
	c.opens(cl, c.osd)
}

func TestRefusedTicketIsRenewedSoon(t *testing.T) {
	c, cl := newClient(t)
	c.osd.cfg.Secrets = NewSecretStore(wire.OSD) // an osd that lost its secrets
	if _, _, cerr, _ := connect(cl, c.osd, wires{}); !errors.Is(cerr, &auth.Refused{Errno: auth.EACCES}) {
		t.Error(cerr)
	}
	wantDue(t, cl, "due", serviceOSD)
	// A monitor refuses the renewal if it has lost the secret of the auth ticket, which has expired by its clock: it takes no claim of
	// the global id by that ticket either.
	_, err := cl.RenewRequest()
	must(t, err)
	if _, err := cl.HandleReply(nil); err == nil || len(cl.tickets) != 0 || cl.newLogin().globalID != 0 {
		t.Errorf("%v, %d tickets are left", err, len(cl.tickets))
	}
}

func TestBadRepliesChangeNothing(t *testing.T) {
	c, cl := newClient(t)
	wantErr(t, "reply without a request", second(cl.HandleReply([]byte{0, 2, 0, 0, 0, 0})), errOutOfOrder)
	delete(cl.tickets, serviceOSD)
	for name, reply := range map[string]func(good []byte) []byte{
		"empty":           func([]byte) []byte { return []byte{} },
		"refused":         func([]byte) []byte { return []byte{0, 2, 0xf3, 0xff, 0xff, 0xff} },
		"positive status": func(p []byte) []byte { return append([]byte{0, 2, 1, 0, 0, 0x40}, p[6:]...) },
		"other op":        func(p []byte) []byte { return append([]byte{0, 1}, p[2:]...) },
		"many tickets":    func(p []byte) []byte { return append(append([]byte(nil), p[:7]...), 0xff, 0xff, 0xff, 0xff) },
		"truncated":       func(p []byte) []byte { return p[:len(p)-1] },
	} {
		good := c.renewal(cl)
		if _, err := cl.HandleReply(reply(good)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		wantDue(t, cl, name, serviceOSD)
		if _, err := cl.HandleReply(good); !errors.Is(err, errOutOfOrder) {
			t.Errorf("%s: second reply: %v", name, err)
		}
	}
	good := c.renewal(cl)
	c.login(cl) // newer than the reply
	held := cl.tickets[serviceOSD]
	_, err := cl.HandleReply(good)
	must(t, err)
	if cl.tickets[serviceOSD] != held {
		t.Error("a late renewal replaced the tickets of a newer login")
	}
}

func TestParallelLoginsDoNotMixIDs(t *testing.T) {
	c := newCluster(t)
	cl := c.client(admin)
	// Two monitors are tried at once; both logins ask for a new id.
	type run struct {
		l *login
		s *Session
		p []byte
	}
	var runs []run
	for range 2 {
		l, s := cl.newLogin(), &Session{a: c.authority}
		p, err := l.first()
		must(t, err)
		name, id, err := decodeLoginStart(p)
		must(t, err)
		p, err = s.start(name, id)
		must(t, err)
		p, err = l.answer(p)
		must(t, err)
		p, err = s.Handle(p)
		must(t, err)
		runs = append(runs, run{l, s, p})
	}
	for _, r := range runs {
		if res, err := r.l.done(r.s.GlobalID(), 0, r.p); err != nil || len(res.SessionKey) == 0 {
			t.Fatal(res, err)
		}
	}
	if cl.GlobalID() != runs[0].s.GlobalID() {
		t.Errorf("id %d, first was %d", cl.GlobalID(), runs[0].s.GlobalID())
	}
	c.opens(cl, c.osd)
}

func TestBadMethodDoesNotLoop(t *testing.T) {
	_, cl := newClient(t)
	cephx, both := []auth.Method{auth.Cephx}, []auth.Mode{auth.CRC, auth.Secure}
	for _, peer := range []wire.EntityType{wire.Mon, wire.OSD} {
		for name, tc := range map[string]struct {
			result  int32
			methods []auth.Method
			modes   []auth.Mode
			retries int
			want    error
		}{
			"method gone":       {auth.EOPNOTSUPP, []auth.Method{auth.None}, both, 0, auth.ErrNoMethod},
			"fewer modes":       {auth.EOPNOTSUPP, cephx, []auth.Mode{auth.CRC}, 1, nil},
			"same modes":        {auth.EOPNOTSUPP, cephx, both, 0, auth.ErrNoMode},
			"no modes":          {auth.EOPNOTSUPP, cephx, nil, 0, auth.ErrNoMode},
			"success as result": {0, cephx, both, 0, &auth.Refused{Errno: auth.EACCES}},
			"positive result":   {1 << 30, cephx, both, 0, &auth.Refused{Errno: auth.EACCES}},
		} {
			e, err := cl.Start(ctx, peer)
			must(t, err)
			var last error
			tries := 0
			for ; tries < 10; tries++ {
				if _, _, _, err := e.Request(ctx); err != nil {
					t.Fatalf("%v %s: request %d: %v", peer, name, tries, err)
				}
				if last = e.BadMethod(ctx, auth.Cephx, tc.result, tc.methods, tc.modes); last != nil {
					break
				}
			}
			if tries != tc.retries || tc.want != nil && !errors.Is(last, tc.want) {
				t.Errorf("%v %s: %d retries, %v", peer, name, tries, last)
			}
		}
	}
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	c, cl := newClient(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				server := c.osd
				if i%2 == 0 {
					server = c.mon
				}
				if _, _, cerr, serr := connect(cl, server, wires{}); cerr != nil || serr != nil {
					t.Error(cerr, serr)
				}
				_ = cl.Tickets()
				_ = cl.RenewAt()
			}
		})
	}
	wg.Wait()
}

func TestWipedClientHasNothingLeft(t *testing.T) {
	c, cl := newClient(t)
	c.clock.add(50 * time.Minute)
	_, err := cl.RenewRequest()
	must(t, err)
	secrets := [][]byte{cl.key.data().secret, cl.pending.key.data().secret}
	for _, held := range cl.tickets {
		secrets = append(secrets, held.sessionKey.data().secret)
	}
	cl.Wipe()
	if !cl.key.IsZero() || len(cl.Tickets()) != 0 {
		t.Error("keys are left")
	}
	wantOverwritten(t, secrets...)
	if _, _, cerr, _ := connect(cl, c.mon, wires{}); !errors.Is(cerr, errNoKey) {
		t.Errorf("wiped client: %v", cerr)
	}
}
