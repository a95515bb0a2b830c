package cephx

import (
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Every inner length and every count of every structure, also of those that come
// encrypted from a peer that has the key, set to 0, 1 and huge: it decodes to something or
// is an error, takes no memory for what is not there, and does not panic.
// Matrix: AU-19, HI-02, HI-03, HI-04
func TestEveryInnerLengthIsChecked(t *testing.T) {
	eachKind(t, checkInnerLengths)
}

func checkInnerLengths(t *testing.T, c *cluster) {
	cl := c.loggedIn(admin, only(auth.Secure))
	k := fuzzKeys[c.cfg.Ciphers.Preferred-AES]
	seal := func(u usage, p []byte) []byte {
		b, err := k.seal(u, nil, p, nil)
		must(t, err)
		return b
	}
	prefixed := func(u usage, head, p []byte) []byte {
		b, err := k.sealPrefixed(u, head, p, nil)
		must(t, err)
		return b
	}
	secrets, err := c.authority.rotating(serviceOSD)
	must(t, err)
	holder, err := NewClient(ClientConfig{Name: osd0, Key: k})
	must(t, err)
	held := cl.tickets[serviceOSD]
	content := ticketContent{name: admin, globalID: 7, created: t0, expires: t0, caps: encodeCaps("allow *"), sessionKey: k}
	head := authorizerHead{7, serviceOSD, held.ticket}
	old := ticket{3, make([]byte, 40)}
	entry := issued{service: serviceOSD, grant: seal(useGrant, (&grant{k, 3600}).appendTo(nil)), sealed: old.appendTo(nil)}
	wrapped := entry
	wrapped.encrypted, wrapped.sealed = true, seal(useOldTicket, wire.AppendBlob(nil, old.appendTo(nil)))
	issuedList := func(op uint16, e ...issued) []byte {
		p := appendIssuedHead(appendReplyHeader(nil, op), len(e))
		for i := range e {
			p = e[i].appendTo(p)
		}
		return p
	}
	secretBlob, err := sealSecret(k, make([]byte, connectionSecretSize), nil)
	must(t, err)
	authReq := authenticate{3, 1, 2, old, defaultServices}
	mainEntry := issued{service: serviceAuth, grant: entry.grant, sealed: entry.sealed}
	login := wire.AppendBlob(wire.AppendBlob(issuedList(opAuthSessionKey, mainEntry), secretBlob), issuedList(0, entry, wrapped)[6:])

	for _, s := range []struct {
		name   string
		good   []byte
		decode func(p []byte) error
	}{
		{"key", k.appendTo(nil), func(p []byte) error { _, err := decodeKey(p, readKey); return err }},
		{"login start", appendLoginStart(nil, admin, 1), func(p []byte) error { _, _, err := decodeLoginStart(p); return err }},
		{"MAuth start", appendMAuthStart(nil, admin, 1), func(p []byte) error { _, _, _, err := decodeMAuthStart(p); return err }},
		{"server challenge", appendServerChallenge(nil, 5), func(p []byte) error { _, err := decodeServerChallenge(p); return err }},
		{"authenticate", authReq.appendTo(nil), func(p []byte) error { r := wire.NewReader(p); readAuthenticate(r); return r.Err() }},
		{"request for tickets", le.AppendUint32(append(prefixed(useAuthorize, head.appendTo(le.AppendUint16(nil, opPrincipalSessionKey)), authorize{nonce: 1}.appendTo(nil)), 1), 4), func(p []byte) error {
			_, err := c.last.Handle(p)
			return err
		}},
		{"service ticket reply", issuedList(0, entry, wrapped)[6:], func(p []byte) error {
			r := wire.NewReader(p)
			list := readIssued(r)
			for i := range list {
				_, _, err := list[i].open(k, k)
				if err != nil {
					return err
				}
			}
			return r.Err()
		}},
		{"login reply", login, func(p []byte) error {
			holder.seen = seenKeys{}
			_, _, err := holder.openLoginReply(p, defaultServices|serviceAuth, k)
			return err
		}},
		{"grant", (&grant{k, 3600}).appendTo(nil), func(p []byte) error {
			e := issued{service: serviceOSD, grant: seal(useGrant, p), sealed: old.appendTo(nil)}
			_, _, err := e.open(k, Key{})
			return err
		}},
		{"encrypted ticket", wire.AppendBlob(nil, old.appendTo(nil)), func(p []byte) error {
			e := wrapped
			e.sealed = seal(useOldTicket, p)
			_, _, err := e.open(k, k)
			return err
		}},
		{"ticket content", content.appendTo(nil), func(p []byte) error { _, err := openTicket(ticket{1, seal(useTicket, p)}, k); return err }},
		{"authorizer", prefixed(useAuthorize, head.appendTo(nil), authorize{nonce: 1}.appendTo(nil)), func(p []byte) error {
			_, _, err := serving(t, c.osd, auth.Secure).Handle(ctx, p)
			return err
		}},
		{"authorize", authorize{nonce: 1, haveChallenge: true, answer: 9}.appendTo(nil), func(p []byte) error {
			sealed, err := held.sessionKey.sealPrefixed(useAuthorize, head.appendTo(nil), p, nil)
			must(t, err)
			_, _, err = serving(t, c.osd, auth.Secure).Handle(ctx, sealed)
			return err
		}},
		{"authorizer challenge", le.AppendUint64([]byte{structVersion}, 5), func(p []byte) error { _, err := openChallenge(k, seal(useChallenge, p)); return err }},
		{"authorizer reply", wire.AppendBlob(le.AppendUint64([]byte{replyVersionSecret}, 5), make([]byte, connectionSecretSize)), func(p []byte) error {
			_, secret, err := openReply(k, prefixed(useReply, nil, p))
			if len(secret) > len(p) {
				t.Errorf("a secret of %d bytes from %d", len(secret), len(p))
			}
			return err
		}},
		{"connection secret", wire.AppendBlob(nil, make([]byte, connectionSecretSize)), func(p []byte) error {
			secret, err := openSecret(k, prefixed(useSecret, nil, p))
			if len(secret) > len(p) {
				t.Errorf("a secret of %d bytes from %d", len(secret), len(p))
			}
			return err
		}},
		{"rotating secrets", secrets.appendTo(nil), func(p []byte) error {
			got, err := holder.openSecrets(prefixed(useRotating, appendReplyHeader(nil, opRotatingKey), p))
			got.Wipe()
			return err
		}},
		{"capabilities", encodeCaps("allow *"), func(p []byte) error { _, err := (&ticketContent{caps: p}).capsText(); return err }},
	} {
		t.Run(s.name, func(t *testing.T) {
			if err := s.decode(s.good); err != nil && !errors.Is(err, errForeignTicket) && !errors.Is(err, errWrongKey) {
				t.Fatalf("as it should be: %v", err)
			}
			n, failed := 0, 0
			took := linktest.Allocated(func() {
				linktest.Spoiled(s.good, func(q []byte) {
					n++
					if s.decode(q) != nil {
						failed++
					}
				})
			})
			if failed == 0 {
				t.Error("nothing was refused")
			}
			// One that took what a huge value says would show in the mean.
			if mean := took / uint64(n); mean > 64<<10 {
				t.Errorf("%d bytes for each of %d", mean, n)
			}
		})
	}
}

// A status in a reply is shown and nothing else: whatever its value, it is never
// a size, an index or a success.
// Matrix: AU-20
func TestOddStatusesAreErrors(t *testing.T) {
	c := newCluster(t)
	cl := c.loggedIn(osd0)
	for _, status := range []int32{1, 2, 16, 1 << 16, 1<<31 - 1, -1, -13, -4095, -4096, -1 << 31} {
		p := le.AppendUint32(le.AppendUint16(nil, opRotatingKey), uint32(status))
		if _, err := cl.openSecrets(append(p, make([]byte, 64)...)); !errors.Is(err, errStatus) {
			t.Errorf("rotating secrets with status %d: %v", status, err)
		}
		delete(cl.tickets, serviceOSD)
		_, err := cl.RenewRequest()
		must(t, err)
		p = le.AppendUint32(le.AppendUint16(nil, opPrincipalSessionKey), uint32(status))
		if _, err := cl.HandleReply(append(p, make([]byte, 64)...)); !errors.Is(err, errStatus) || auth.Errno(err) >= 0 {
			t.Errorf("renewal with status %d: %v, errno %d", status, err, auth.Errno(err))
		}
		l := cl.newLogin()
		_, err = l.first()
		must(t, err)
		_, err = l.answer(appendServerChallenge(nil, 5))
		must(t, err)
		p = le.AppendUint32(le.AppendUint16(nil, opAuthSessionKey), uint32(status))
		var said *auth.Refused
		if _, err := l.done(1, auth.CRC, append(p, make([]byte, 64)...)); !errors.Is(err, errStatus) || !errors.As(err, &said) || said.Errno >= 0 {
			t.Errorf("login with status %d: %v", status, err)
		}
		l.Wipe()
	}
}
