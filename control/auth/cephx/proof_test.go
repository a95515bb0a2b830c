package cephx

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

func TestWrongKeyAndUnknownEntityAreRefusedAlike(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		wrong, err := NewKey(AES, c.rand, t0)
		must(t, err)
		for _, name := range []wire.EntityName{admin, {Type: wire.Client, ID: "nobody"}} {
			cl, err := NewClient(ClientConfig{Name: name, Key: wrong, Rand: c.rand, Now: c.clock.Now})
			must(t, err)
			_, _, cerr, serr := connect(cl, wire.Client, c.mon, wire.Mon, wires{})
			if !errors.Is(serr, ErrProof) || !errors.Is(cerr, &auth.Refused{Errno: auth.EACCES}) {
				t.Errorf("%v: %v, %v", name, serr, cerr)
			}
			if cl.GlobalID() != 0 || len(cl.Tickets()) != 0 {
				t.Error("a refused client has tickets")
			}
		}
		if len(c.sessions) != 0 {
			t.Error("a refused client has a session")
		}
	})
}

func TestForgedProofOfUnknownEntityIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		// Even one who knew the key that unknown entities are compared with.
		cl, err := NewClient(ClientConfig{Name: wire.EntityName{Type: wire.Client, ID: "nobody"}, Key: c.authority.nobody, Rand: c.rand})
		must(t, err)
		if _, _, _, serr := connect(cl, wire.Client, c.mon, wire.Mon, wires{}); !errors.Is(serr, ErrProof) {
			t.Error(serr)
		}
	})
}

// Matrix: AU-08
func TestReplayedLoginIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin)
		var rec [][]byte
		_, _, cerr, serr := connect(cl, wire.Client, c.mon, wire.Mon, wires{request: func(_ int, p []byte) []byte {
			rec = append(rec, slices.Clone(p))
			return p
		}})
		must(t, errors.Join(cerr, serr))
		e, err := c.mon.Start(ctx, wire.Client, auth.Cephx, auth.Secure)
		must(t, err)
		if _, _, err := e.Handle(ctx, rec[0]); err != nil {
			t.Fatal(err)
		}
		if _, res, err := e.Handle(ctx, rec[1]); !errors.Is(err, ErrProof) || res != nil {
			t.Errorf("replayed login: %v", err)
		}
		if _, _, err := e.Handle(ctx, rec[1]); !errors.Is(err, ErrOutOfOrder) {
			t.Errorf("second try on the same exchange: %v", err)
		}
	})
}

// Matrix: AU-08
func TestReplayedAuthorizerIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin)
		c.login(cl)
		var rec [][]byte
		_, _, cerr, serr := connect(cl, wire.Client, c.osd, wire.OSD, wires{request: func(_ int, p []byte) []byte {
			rec = append(rec, slices.Clone(p))
			return p
		}})
		must(t, errors.Join(cerr, serr))
		for _, order := range [][]int{{0, 1}, {1, 1}, {0, 0}} {
			e, err := c.osd.Start(ctx, wire.Client, auth.Cephx, auth.CRC)
			must(t, err)
			if _, res, err := e.Handle(ctx, rec[order[0]]); err != nil || res != nil {
				t.Fatalf("%v: first: %v %v", order, res, err)
			}
			if _, res, err := e.Handle(ctx, rec[order[1]]); !errors.Is(err, ErrChallenge) || res != nil {
				t.Errorf("%v: second: %v", order, err)
			}
			if _, _, err := e.Handle(ctx, rec[1]); !errors.Is(err, ErrOutOfOrder) {
				t.Errorf("%v: third: %v", order, err)
			}
		}
	})
}

func TestReplayedMonitorReplyIsRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin)
		var rec []byte
		_, _, cerr, serr := connect(cl, wire.Client, c.mon, wire.Mon, wires{reply: func(round int, p []byte) []byte {
			if round == 1 {
				rec = slices.Clone(p)
			}
			return p
		}})
		must(t, errors.Join(cerr, serr))
		before := cl.Tickets()
		_, _, cerr, _ = connect(cl, wire.Client, c.mon, wire.Mon, wires{reply: func(round int, p []byte) []byte {
			if round == 1 {
				return rec
			}
			return p
		}})
		if !errors.Is(cerr, errReplayed) {
			t.Errorf("replayed reply: %v", cerr)
		}
		if !slices.Equal(before, cl.Tickets()) {
			t.Error("tickets changed")
		}
	})
}

func TestAlteredPayloadsNeverAuthenticate(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		// Every byte of every payload of both exchanges, altered: no side may agree with the
		// other on keys and end with other values, nor panic.
		cl := c.client(admin, only(auth.Secure))
		c.login(cl)
		for _, peer := range []wire.EntityType{wire.Mon, wire.OSD} {
			server := c.mon
			if peer == wire.OSD {
				server = c.osd
			}
			var lens [2][2]int
			note := func(dir int) func(int, []byte) []byte {
				return func(round int, p []byte) []byte { lens[dir][round] = len(p); return p }
			}
			_, want, cerr, serr := connect(cl, wire.Client, server, peer, wires{note(0), note(1)})
			must(t, errors.Join(cerr, serr))
			for dir := range 2 {
				for round := range 2 {
					for i := range lens[dir][round] {
						flip := func(r int, p []byte) []byte {
							if r == round && i < len(p) {
								p = slices.Clone(p)
								p[i] ^= 0x41
							}
							return p
						}
						w := wires{request: flip}
						if dir == 1 {
							w = wires{reply: flip}
						}
						cres, sres, cerr, serr := connect(cl, wire.Client, server, peer, w)
						if cerr == nil && serr == nil && sres != nil && bytes.Equal(cres.SessionKey, sres.SessionKey) {
							// What the payloads themselves do not protect is covered by the
							// signature of the transcript; the identity must still be right.
							if sres.Entity != want.Entity {
								t.Errorf("%v dir %d round %d byte %d: became %v", peer, dir, round, i, sres.Entity)
							}
						}
					}
				}
			}
		}
	})
}

func TestTruncatedPayloadsAreErrors(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin, only(auth.Secure))
		c.login(cl)
		for _, peer := range []wire.EntityType{wire.Mon, wire.OSD} {
			server := c.mon
			if peer == wire.OSD {
				server = c.osd
			}
			for dir := range 2 {
				for round := range 2 {
					for n, full := 0, -1; full < 0 || n < full; n++ {
						cut := func(r int, p []byte) []byte {
							if r == round {
								full = len(p)
								p = p[:min(n, len(p))]
							}
							return p
						}
						w := wires{request: cut}
						if dir == 1 {
							w = wires{reply: cut}
						}
						_, _, cerr, serr := connect(cl, wire.Client, server, peer, w)
						if cerr == nil && serr == nil && n < full {
							t.Fatalf("%v dir %d round %d: accepted with %d of %d bytes", peer, dir, round, n, full)
						}
					}
				}
			}
		}
	})
}

// Matrix: AU-09
func TestClientWantsTheServersProof(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.client(admin)
		c.login(cl)
		fake, err := NewKey(AES, c.rand, t0)
		must(t, err)
		for name, reply := range map[string]func(p []byte) []byte{
			"missing":        func([]byte) []byte { return nil },
			"empty envelope": func([]byte) []byte { return []byte{0, 0, 0, 0} },
			"of another key": func([]byte) []byte { p, _ := sealReply(fake, 1, nil, nil); return p },
			"of another nonce": func([]byte) []byte {
				p, _ := sealReply(cl.tickets[ServiceOSD].sessionKey, 1, nil, nil)
				return p
			},
		} {
			_, _, cerr, serr := connect(cl, wire.Client, c.osd, wire.OSD, wires{reply: func(round int, p []byte) []byte {
				if round == 1 {
					return reply(p)
				}
				return p
			}})
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
		cl := c.client(admin, only(auth.Secure))
		c.login(cl)
		session := cl.tickets[ServiceOSD].sessionKey
		for _, n := range []int{0, 1, 16, auth.ConnectionSecretMin - 1, auth.ConnectionSecretMin, maxSecret + 1} {
			e, err := cl.Start(ctx, wire.OSD)
			must(t, err)
			_, _, _, err = e.Request(ctx)
			must(t, err)
			challenge, err := sealChallenge(session, 7, nil)
			must(t, err)
			_, err = e.ReplyMore(ctx, challenge)
			must(t, err)
			reply, err := sealReply(session, e.(*serviceExchange).a.nonce, make([]byte, n), nil)
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
		e, err := cl.Start(ctx, wire.Mon)
		must(t, err)
		se, err := c.mon.Start(ctx, wire.Client, auth.Cephx, auth.CRC)
		must(t, err)
		_, _, p, err := e.Request(ctx)
		must(t, err)
		p, _, err = se.Handle(ctx, p)
		must(t, err)
		p, err = e.ReplyMore(ctx, p)
		must(t, err)
		p, res, err := se.Handle(ctx, p)
		must(t, err)
		if _, err := e.Done(ctx, res.GlobalID, auth.Secure, p); !errors.Is(err, errConnectionSecret) {
			t.Error(err)
		}
	})
}
