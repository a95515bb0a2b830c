package cephx

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func TestWrongKeyAndUnknownEntityAreRefusedAlike(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		wrong := newKey(t, AES)
		nobody := wire.EntityName{Type: wire.Client, ID: "nobody"}
		for _, one := range []struct {
			name wire.EntityName
			key  Key
		}{{admin, wrong}, {nobody, wrong}, {nobody, c.authority.nobody}} { // the last is what unknown entities are compared with
			cl, err := NewClient(ClientConfig{Name: one.name, Key: one.key, Rand: c.rand, Now: c.clock.Now})
			must(t, err)
			_, sres, cerr, serr := connect(cl, c.mon, wires{})
			if sres != nil || !errors.Is(serr, errProof) || !errors.Is(cerr, &auth.Refused{Errno: auth.EACCES}) {
				t.Errorf("%v: %v, %v", one.name, serr, cerr)
			}
			if cl.GlobalID() != 0 || len(cl.Tickets()) != 0 {
				t.Error("a refused client has tickets")
			}
		}
	})
}

// noting has the requests of an exchange kept.
func noting(kept *[][]byte) wires {
	return wires{request: func(_ int, p []byte) []byte {
		*kept = append(*kept, slices.Clone(p))
		return p
	}}
}

// Matrix: AU-08
func TestReplayedLoginIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin)
		var rec [][]byte
		_, _, cerr, serr := connect(cl, c.mon, noting(&rec))
		must(t, errors.Join(cerr, serr))
		e := serving(t, c.mon, auth.Secure)
		if _, _, err := e.Handle(ctx, rec[0]); err != nil {
			t.Fatal(err)
		}
		if _, res, err := e.Handle(ctx, rec[1]); !errors.Is(err, errProof) || res != nil {
			t.Errorf("replayed login: %v", err)
		}
		if _, _, err := e.Handle(ctx, rec[1]); !errors.Is(err, errOutOfOrder) {
			t.Errorf("second try on the same exchange: %v", err)
		}
	})
}

// Matrix: AU-08
func TestReplayedAuthorizerIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.loggedIn(admin)
		var rec [][]byte
		_, _, cerr, serr := connect(cl, c.osd, noting(&rec))
		must(t, errors.Join(cerr, serr))
		for _, order := range [][]int{{0, 1}, {1, 1}, {0, 0}} {
			e := serving(t, c.osd, auth.CRC)
			if _, res, err := e.Handle(ctx, rec[order[0]]); err != nil || res != nil {
				t.Fatalf("%v: first: %v %v", order, res, err)
			}
			if _, res, err := e.Handle(ctx, rec[order[1]]); !errors.Is(err, errChallenge) || res != nil {
				t.Errorf("%v: second: %v", order, err)
			}
			if _, _, err := e.Handle(ctx, rec[1]); !errors.Is(err, errOutOfOrder) {
				t.Errorf("%v: third: %v", order, err)
			}
		}
	})
}

func TestReplayedMonitorReplyIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin)
		var rec []byte
		_, _, cerr, serr := connect(cl, c.mon, lastReply(func(p []byte) []byte { rec = slices.Clone(p); return p }))
		must(t, errors.Join(cerr, serr))
		for logins := 1; logins < 4; logins++ {
			before := cl.Tickets()
			_, _, cerr, _ = connect(cl, c.mon, lastReply(func([]byte) []byte { return rec }))
			if !errors.Is(cerr, errReplayed) {
				t.Errorf("reply of the first of %d logins: %v", logins, cerr)
			}
			if !slices.Equal(before, cl.Tickets()) {
				t.Error("tickets changed")
			}
			c.login(cl)
		}
	})
}

// eachByte runs both exchanges once for each byte of each payload, which is changed on its way.
func eachByte(c *cluster, change func(p []byte, at int) []byte, check func(where string, cres, sres *auth.Result, err error)) {
	cl := c.loggedIn(admin, only(auth.Secure))
	for peer, server := range map[wire.EntityType]*Server{wire.Mon: c.mon, wire.OSD: c.osd} {
		for dir := range 2 {
			for round := range 2 {
				for at, size := 0, 1; at < size; at++ {
					changed := func(r int, p []byte) []byte {
						if r != round {
							return p
						}
						size = len(p)
						return change(slices.Clone(p), min(at, size-1))
					}
					w := wires{request: changed}
					if dir == 1 {
						w = wires{reply: changed}
					}
					cres, sres, cerr, serr := connect(cl, server, w)
					check(fmt.Sprintf("%v dir %d round %d byte %d of %d", peer, dir, round, at, size), cres, sres, errors.Join(cerr, serr))
				}
			}
		}
	}
}

// No side agrees with the other on keys and ends with other values. What the payloads
// themselves do not protect is covered by the signature of the transcript. What is cut is an error.
func TestAlteredOrTruncatedPayloadsNeverAuthenticate(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		eachByte(c, func(p []byte, at int) []byte { p[at] ^= 0x41; return p }, func(where string, cres, sres *auth.Result, err error) {
			if err == nil && sres != nil && bytes.Equal(cres.SessionKey, sres.SessionKey) && sres.Entity != admin {
				t.Errorf("%s: became %v", where, sres.Entity)
			}
		})
		eachByte(c, func(p []byte, at int) []byte { return p[:at] }, func(where string, _, _ *auth.Result, err error) {
			if err == nil {
				t.Fatalf("%s: accepted", where)
			}
		})
	})
}

// Matrix: AU-09
func TestClientWantsTheServersProof(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.loggedIn(admin)
		fake := newKey(t, AES)
		for name, reply := range map[string]func(p []byte) []byte{
			"missing":        func([]byte) []byte { return nil },
			"empty envelope": func([]byte) []byte { return []byte{0, 0, 0, 0} },
			"of another key": func([]byte) []byte { p, _ := sealReply(fake, 1, nil, nil); return p },
			"of another nonce": func([]byte) []byte {
				p, _ := sealReply(cl.tickets[serviceOSD].sessionKey, 1, nil, nil)
				return p
			},
		} {
			_, _, cerr, serr := connect(cl, c.osd, lastReply(reply))
			if serr != nil || cerr == nil {
				t.Errorf("proof %s: client %v, server %v", name, cerr, serr)
			}
			if name != "missing" && name != "empty envelope" && !errors.Is(cerr, ErrServerProof) {
				t.Errorf("proof %s: %v", name, cerr)
			}
		}
	})
}

// Matrix: AU-13
func TestShortConnectionSecretIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.loggedIn(admin, only(auth.Secure))
		session := cl.tickets[serviceOSD].sessionKey
		for _, n := range []int{0, 1, 16, auth.ConnectionSecretMin - 1, auth.ConnectionSecretMin, maxSecret + 1} {
			e, _ := asked(t, cl, wire.OSD)
			challenge, err := sealChallenge(session, 7, nil)
			must(t, err)
			_, err = e.ReplyMore(ctx, challenge)
			must(t, err)
			reply, err := sealReply(session, e.(*clientExchange).steps.(*authorizer).nonce, make([]byte, n), nil)
			must(t, err)
			res, err := e.Done(ctx, 1, auth.Secure, reply)
			if ok := n == auth.ConnectionSecretMin; ok != (err == nil) {
				t.Errorf("%d bytes: %v %v", n, res, err)
			}
			if n < auth.ConnectionSecretMin && !errors.Is(err, errConnectionSecret) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		// The same at login: crc has no secret, and the acceptor then says secure.
		e, se, p := answered(t, cl, c.mon, auth.CRC)
		p, res, err := se.Handle(ctx, p)
		must(t, err)
		if _, err := e.Done(ctx, res.GlobalID, auth.Secure, p); !errors.Is(err, errConnectionSecret) {
			t.Error(err)
		}
	})
}
