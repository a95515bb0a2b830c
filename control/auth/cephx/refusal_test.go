package cephx

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func TestOneTryPerChallenge(t *testing.T) {
	c := newCluster(t)
	s, proof := c.challenged(admin, 0, 1)
	request := func(proof uint64) []byte { return proving(authenticate{3, 1, proof, ticket{}, serviceAuth}) }
	wantErr(t, "wrong proof", second(s.Handle(request(proof^1<<40))), errProof)
	wantErr(t, "second try", second(s.Handle(request(proof))), errOutOfOrder)
	_, err := s.start(admin, 0)
	must(t, err)
	if _, _, err := s.handleLogin([]byte{0, 2}, auth.CRC); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("another request instead of the proof: %v", err)
	}
	if s.challenge != 0 {
		t.Error("the challenge is still valid")
	}
	// A renewal that is refused ends the session of before.
	c.loggedIn(admin)
	wantErr(t, "renewal with a wrong proof", second(c.last.Handle(request(1))), errProof)
	if _, err := c.last.Handle([]byte{0, 2}); !errors.Is(err, errOutOfOrder) || c.last.Result() != nil {
		t.Errorf("request after it: %v, logged in as %v", err, c.last.Result())
	}
}

func TestTicketRequestNeedsAValidAuthTicket(t *testing.T) {
	c, cl := newClient(t)
	main, osd := cl.tickets[serviceAuth], cl.tickets[serviceOSD]
	ask := func(h authorizerHead, k Key) error {
		p := append(le.AppendUint16(nil, opPrincipalSessionKey), authorizerOf(t, cl, h, k.Clone())...)
		_, err := c.last.Handle(le.AppendUint32(append(p, structVersion), uint32(serviceOSD)))
		return err
	}
	good := authorizerHead{cl.globalID, serviceAuth, main.ticket}
	must(t, ask(good, main.sessionKey))
	wantErr(t, "another global id", ask(authorizerHead{cl.globalID + 1, serviceAuth, main.ticket}, main.sessionKey), errForeignTicket)
	wantErr(t, "for another service", ask(authorizerHead{cl.globalID, serviceOSD, main.ticket}, main.sessionKey), errForeignTicket)
	wantErr(t, "ticket for another service", ask(authorizerHead{cl.globalID, serviceAuth, osd.ticket}, osd.sessionKey), errWrongKey)
	wantErr(t, "without the session key", ask(good, osd.sessionKey), errWrongKey)
	own := c.ring.entities[admin]
	delete(c.ring.entities, admin)
	wantErr(t, "of an entity that was removed", ask(good, main.sessionKey), errProof)
	must(t, c.ring.Set(own))
	c.clock.add(defaultAuthTTL)
	wantErr(t, "expired", ask(good, main.sessionKey), errTicketExpired)
}

func TestChallengeMustBeAnsweredEvenIfTheAnswerIsZero(t *testing.T) {
	c, cl := newClient(t)
	s, err := NewServer(ServerConfig{Own: wire.OSD, Secrets: c.authority, Now: c.clock.Now, Rand: script(^uint64(0))})
	must(t, err)
	a, err := cl.newAuthorizer(serviceOSD)
	must(t, err)
	p, err := a.first()
	must(t, err)
	v := serving(t, s, auth.CRC)
	challenge, _, err := v.Handle(ctx, p)
	must(t, err)
	if _, res, err := v.Handle(ctx, p); !errors.Is(err, errChallenge) || res != nil {
		t.Errorf("no answer: %v", err)
	}
	answer, err := a.answer(challenge)
	must(t, err)
	if _, _, err := v.Handle(ctx, answer); !errors.Is(err, errOutOfOrder) {
		t.Errorf("answer after the refusal: %v", err)
	}
}

func TestUnlikelyRepliesAreRefused(t *testing.T) {
	c := newCluster(t)
	a, err := c.loggedIn(admin).newAuthorizer(serviceOSD)
	must(t, err)
	wantErr(t, "challenge under another key", second(a.answer(make([]byte, 2*blockSize))), errWrongKey)
	cl := c.client(admin)
	l := cl.newLogin()
	_, err = l.first()
	must(t, err)
	wantErr(t, "challenge zero", second(l.answer(appendServerChallenge(nil, 0))), wire.ErrMalformed)
	_, err = l.answer(appendServerChallenge(nil, 1))
	must(t, err)
	if _, err := l.done(0, 0, nil); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "global id") {
		t.Errorf("global id zero: %v", err)
	}
}

// A secret or further tickets that cannot be read end a login, and the client has nothing of it.
func TestALoginReplyIsTakenAsAWhole(t *testing.T) {
	c, other := newCluster(t), newKey(t, AES)
	secret, err := sealSecret(other, nil, nil)
	must(t, err)
	tickets, _, err := c.authority.appendTickets(nil, serviceOSD, admin, 1, other)
	must(t, err)
	for what, tc := range map[string]struct {
		change func(secret, tickets *[]byte)
		want   error
	}{
		"as it is":                     {func(*[]byte, *[]byte) {}, nil},
		"secret under another key":     {func(s, _ *[]byte) { *s = secret }, errWrongKey},
		"tickets under another key":    {func(_, t *[]byte) { *t = tickets }, errWrongKey},
		"fewer tickets than announced": {func(_, t *[]byte) { *t = appendIssuedHead(nil, 1) }, wire.ErrMalformed},
	} {
		cl := c.client(admin)
		_, _, cerr, serr := connect(cl, c.mon, lastReply(func(p []byte) []byte {
			r := wire.NewReader(p)
			readReplyHeader(r, opAuthSessionKey)
			readIssued(r)
			n := len(p) - r.Len()
			blobC, blobX := r.Blob(), r.Blob()
			tc.change(&blobC, &blobX)
			return wire.AppendBlob(wire.AppendBlob(p[:n:n], blobC), blobX)
		}))
		must(t, serr)
		wantErr(t, what, cerr, tc.want)
		if len(cl.tickets) > 0 != (tc.want == nil) {
			t.Errorf("%s: tickets %v", what, cl.Tickets())
		}
	}
}

func TestTicketsThatWereNotAskedForAreDropped(t *testing.T) {
	c := newCluster(t)
	cl, narrow := c.loggedIn(admin), c.client(admin, func(cfg *ClientConfig) { cfg.Services = wire.OSD })
	c.login(narrow)
	if n, all := len(narrow.Tickets()), cl.Tickets(); n != 2 || len(all) != 4 || all[0].Service != wire.Mon || all[3].Service != wire.Auth || all[0].SecretID != 2 {
		t.Errorf("%d tickets for osds alone, all: %+v", n, all)
	}
	mgr := cl.tickets[serviceMgr]
	for _, gives := range []service{serviceMgr | serviceMDS, serviceOSD | serviceMgr | serviceMDS} {
		delete(cl.tickets, serviceOSD)
		_, err := cl.RenewRequest() // for osd
		must(t, err)
		reply, _, err := c.authority.appendTickets(appendReplyHeader(nil, opPrincipalSessionKey), gives,
			admin, cl.globalID, cl.tickets[serviceAuth].sessionKey)
		must(t, err)
		whole, err := cl.HandleReply(reply)
		must(t, err)
		if got := cl.tickets[serviceOSD] != nil; got != gives.has(serviceOSD) || whole != got {
			t.Errorf("%v: whole %v, ticket for osds %v", gives, whole, got)
		}
		if cl.tickets[serviceMgr] != mgr || cl.tickets[serviceMDS] != nil {
			t.Errorf("%v: tickets %+v", gives, cl.Tickets())
		}
	}
}

func TestTicketTimesFollowTheWallClock(t *testing.T) {
	c := newCluster(t)
	cl := c.loggedIn(admin, func(cfg *ClientConfig) { cfg.Now = time.Now })
	for _, info := range cl.Tickets() {
		if strings.Contains(info.Expires.String()+info.RenewAt.String(), "m=") {
			t.Errorf("ticket for %v has a monotonic time", info.Service)
		}
	}
}

func TestLaterVersionsOfStructuresAreRead(t *testing.T) {
	c, cl := newClient(t)
	content, err := openTicket(cl.tickets[serviceOSD].ticket, func() Key { k, _ := c.authority.Secret(wire.OSD, 2); return k }())
	must(t, err)
	p := append(content.appendTo(nil), 1, 2, 3)
	p[0] = 9
	again := readTicketContent(wire.NewReader(p))
	same(t, "content", again.appendTo(nil), content.appendTo(nil))
	content.allowAll = true
	if caps, err := content.capsText(); err != nil || caps != "allow *" {
		t.Errorf("allow all gives %q, %v", caps, err)
	}
	for _, version := range []int{0, 1} {
		p := content.appendTo(nil)
		p[version] = 0
		r := wire.NewReader(p)
		if readTicketContent(r); !errors.Is(r.Err(), wire.ErrMalformed) {
			t.Errorf("version 0 at %d: %v", version, r.Err())
		}
	}
}

func TestTicketsForMonitorsHaveNoCaps(t *testing.T) {
	c := newCluster(t)
	for _, s := range []wire.EntityType{wire.Mon, wire.Auth} {
		tk, _, err := c.authority.issueFor(service(s), admin, 1, AES)
		must(t, err)
		secret, _ := c.authority.Secret(s, tk.secretID)
		content, err := openTicket(tk, secret)
		must(t, err)
		if len(content.caps) != 0 {
			t.Errorf("%v ticket has caps %q", s, content.caps)
		}
	}
}

// Matrix: HI-02
func TestBoundsOfStructures(t *testing.T) {
	for n, ok := range map[int]bool{maxTicketBlob: true, maxTicketBlob + 1: false} {
		r := wire.NewReader(ticket{1, make([]byte, n)}.appendTo(nil))
		if readTicket(r); ok != (r.Err() == nil) {
			t.Errorf("ticket of %d bytes: %v", n, r.Err())
		}
	}
	p := admin.AppendTo(wire.AppendU32s([]byte{structVersion}, make([]uint32, 1000)))
	if methods, _, _, err := decodeMAuthStart(le.AppendUint64(p, 0)); len(methods) != maxMethods || err != nil {
		t.Errorf("%d methods, %v", len(methods), err)
	}
	var s rotatingSecrets
	must(t, s.rotate(t0, time.Hour, AES, nil))
	for _, id := range []uint64{0, 1} { // repeated, falling
		bad := s.clone()
		bad.list[1].id = id
		if _, err := decodeRotatingSecrets(bad.appendTo(nil)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("id %d: %v", id, err)
		}
	}
	wantErr(t, "secrets without a life", s.rotate(t0, 0, AES, nil), errConfig)
	oldest, _ := s.byID(1)
	must(t, s.rotate(t0.Add(2*time.Hour), time.Hour, AES, nil))
	if !oldest.IsZero() {
		t.Error("a dropped secret is not wiped")
	}
}
