package handshake2

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// realm has a monitor and an osd that authenticate with cephx, and clients.
type realm struct {
	t        testing.TB
	ring     *cephx.Keyring
	mon, osd auth.Server
}

func newRealm(t testing.TB) *realm {
	t.Helper()
	ring, err := cephx.ReadKeyring(strings.NewReader(`
[mon.]
	key = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==
[client.admin]
	key = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==
	caps mon = "allow r"
[client.other]
	key = AQAlMgppkIuaGRAANl25pRpdkMKe16ETnRsIhA==
`))
	must(t, err)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	must(t, err)
	both := func(wire.EntityType) []auth.Mode { return bothMode }
	mon, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority, Modes: both})
	must(t, err)
	osd, err := cephx.NewServer(cephx.ServerConfig{Own: wire.OSD, Secrets: authority, Modes: both})
	must(t, err)
	return &realm{t, ring, mon, osd}
}

// way is who connects to whom and how.
type way struct {
	peer wire.EntityType
	mode auth.Mode
	rev0 bool
}

func (w way) String() string { return fmt.Sprintf("%v %v rev0=%v", w.peer, w.mode, w.rev0) }

func ways() (all []way) {
	for _, peer := range []wire.EntityType{wire.Mon, wire.OSD} {
		for _, mode := range bothMode {
			for _, rev0 := range []bool{false, true} {
				all = append(all, way{peer, mode, rev0})
			}
		}
	}
	return all
}

func (w way) rev() frame.Revision {
	if w.rev0 {
		return frame.Rev0
	}
	return frame.Rev1
}

// client is one that has logged in, if it goes to an osd.
func (r *realm) client(id string, w way) *cephx.Client {
	r.t.Helper()
	entity, _ := r.ring.Lookup(wire.EntityName{Type: wire.Client, ID: id})
	c, err := cephx.NewClient(cephx.ClientConfig{
		Name: entity.Name, Key: entity.Key, Modes: func(wire.EntityType) []auth.Mode { return []auth.Mode{w.mode} },
	})
	must(r.t, err)
	if w.peer != wire.Mon {
		cc, ac := r.configs(c, way{wire.Mon, w.mode, false})
		writesOf(r.t, cc, ac)
	}
	return c
}

func (r *realm) configs(c auth.Client, w way) (ConnectConfig, AcceptConfig) {
	server := r.mon
	if w.peer == wire.OSD {
		server = r.osd
	}
	return ConnectConfig{
			Options: Options{EntityType: wire.Client, Rev0Only: w.rev0}, Target: target, PeerType: w.peer, Auth: c,
		}, AcceptConfig{
			Options: Options{EntityType: w.peer}, PeerAddr: clientAt, Auth: server,
		}
}

// meet runs a handshake of which each side's writes are changed by a function,
// or not. The limit ends a side that waits for bytes that a change took away.
func (r *realm) meet(t testing.TB, c auth.Client, w way, toAcceptor, toConnector func(int, []byte) []byte) (x, y outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	a, b := linktest.New()
	a.Tamper, b.Tamper = noting(new([][]byte), toAcceptor), noting(new([][]byte), toConnector)
	cc, ac := r.configs(c, w)
	return both(t, ctx, a, b, cc, ac)
}

// normal is a handshake that nobody disturbs.
func (r *realm) normal(id string, w way) (c2s, s2c [][]byte) {
	r.t.Helper()
	cc, ac := r.configs(r.client(id, w), w)
	return writesOf(r.t, cc, ac)
}

// unusedSums is the room for the checksums of three segments at the end of a
// frame of revision 0.
const unusedSums = 3 * 4

// Whatever byte is changed on the way before the authentication has ended,
// the handshake fails on one side at least: as it is, and with a checksum that was
// made right again. No side gets through with what the other has not sent.
// Matrix: AU-06
func TestEveryChangedByteOfACephxHandshakeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t)
		for _, w := range ways() {
			c2s, s2c := r.normal("admin", w)
			c := r.client("admin", w)
			try := func(what string, toAcceptor, toConnector func(int, []byte) []byte) {
				if w.peer == wire.Mon {
					c = r.client("admin", w) // one that has not logged in yet
				}
				if x, y := r.meet(t, c, w, toAcceptor, toConnector); x.err == nil && y.err == nil {
					t.Errorf("%v: %s was not found", w, what)
				}
			}
			for dir, writes := range map[string][][]byte{"connector": c2s, "acceptor": s2c} {
				for n, p := range writes {
					mend := len(p) > wire2.BannerSize && n < len(writes)-1 // a frame before the signature
					for at := range p {
						if w.rev0 && w.mode == auth.CRC && n == len(writes)-1 && at >= len(p)-unusedSums {
							// Behind the signature: the checksums of segments that are not there.
							continue
						}
						mask := byte(1) << (at % 8)
						for _, mended := range []bool{false, true} {
							if mended && !mend || !mended && w.rev0 == (w.mode == auth.Secure) && os.Getenv("RINGMSGR_LONG") == "" {
								continue // half of the ways show that checksums work
							}
							change := func(i int, p []byte) []byte {
								switch {
								case i != n || at >= len(p):
								case !mended:
									p[at] ^= mask
								default:
									p = changePayload(t, w.rev(), p, at, mask)
								}
								return p
							}
							what := fmt.Sprintf("write %d of the %s, byte %d, mended %v", n, dir, at, mended)
							if mended && changePayload(t, w.rev(), p, at, mask) == nil {
								continue
							}
							if dir == "connector" {
								try(what, change, nil)
							} else {
								try(what, nil, change)
							}
						}
					}
				}
			}
		}
	})
}

// changePayload changes a byte of the payload of a frame and makes the checksums
// new; nil if the payload has no such byte.
func changePayload(t testing.TB, rev frame.Revision, p []byte, at int, mask byte) []byte {
	t.Helper()
	dec := frame.NewDecoder(rev, frame.DefaultLimits())
	p = bytes.Clone(p)
	h, err := dec.Open(p[:dec.HeadSize()])
	must(t, err)
	f, err := dec.Finish(h, p[:dec.HeadSize()], p[dec.HeadSize():])
	must(t, err)
	if at >= len(f.Seg[0]) {
		return nil
	}
	f.Seg[0][at] ^= mask
	out, err := frame.NewEncoder(rev).AppendFrame(nil, h.Tag, f.Seg[0])
	must(t, err)
	return out
}

// Parts of one session do not fit into another: with any frame of another
// handshake of the same entity, or of another entity, in the place of its own one,
// a handshake fails.
// Matrix: HI-22
func TestFramesOfAnotherCephxSessionDoNotFit(t *testing.T) {
	r := newRealm(t)
	synctest.Test(t, func(t *testing.T) {
		for _, w := range ways() {
			for _, id := range []string{"admin", "other"} {
				c2s, s2c := r.normal(id, w)
				own := r.client("admin", w)
				for dir, writes := range [][][]byte{c2s, s2c} {
					for n, foreign := range writes {
						same := false
						splice := func(i int, p []byte) []byte {
							if i != n {
								return p
							}
							same = bytes.Equal(p, foreign)
							return foreign
						}
						if w.peer == wire.Mon {
							own = r.client("admin", w)
						}
						to := [2]func(int, []byte) []byte{}
						to[dir] = splice
						x, y := r.meet(t, own, w, to[0], to[1])
						ok := x.err == nil && y.err == nil
						if ok != same {
							t.Errorf("%v, session of %s, direction %d, write %d, same bytes %v: %v, %v", w, id, dir, n, same, x.err, y.err)
						}
						// Whoever got the foreign frame does not get through.
						if got := [2]error{y.err, x.err}[dir]; !same && got == nil {
							t.Errorf("%v, session of %s, direction %d, write %d: the receiver is content", w, id, dir, n)
						}
					}
				}
			}
		}
	})
}
