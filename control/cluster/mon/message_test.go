package mon

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Every captured message decodes, every cut of it fails, and what we make of
// its content is the same bytes where we say the same.
func TestCapturedMessages(t *testing.T) {
	seen := map[uint16]int{}
	for _, v := range captured.Read(t) {
		front := []byte(v.Front)
		seen[v.Type]++
		var decode func(p []byte) error
		switch v.Type {
		case typeMonMap:
			decode = func(p []byte) error { _, err := decodeMonMap(wire.NewReader(p).Blob()); return err }
			m, _ := decodeMonMap(wire.NewReader(front).Blob())
			if m.Epoch == 0 || len(m.Mons) != 1 || m.Mons[0].Name != "a" || m.Mons[0].Addrs.V2().IsBlank() || m.FSID == (FSID{}) {
				t.Errorf("%s: %+v", v.Note, m)
			}
			ours, size := m.AppendTo(nil), len(front)-4
			again, err := decodeMonMap(ours)
			if err != nil || !reflect.DeepEqual(again, m) {
				t.Errorf("%s: encoded and decoded %+v, %v; want %+v", v.Note, again, err, m)
			}
			var ciphers cephx.Ciphers
			if strings.Contains(v.Note, "20.2") {
				size -= 8 // when the monitor was added
				ciphers = cephx.Ciphers{Allowed: []cephx.Kind{cephx.AES, cephx.AES256K}, Service: cephx.AES256K, Preferred: cephx.AES256K}
			}
			if !reflect.DeepEqual(m.Ciphers, ciphers) || len(ours) != size || !bytes.HasSuffix(front, ours[len(ours)-42:]) {
				t.Errorf("%s: ciphers %+v; our encoding has %d bytes, the monitor's %d, and ends %x", v.Note, m.Ciphers, len(ours), size, ours[len(ours)-42:])
			}
		case typeSubscribe:
			decode = func(p []byte) error { _, err := decodeSubscribe(p); return err }
		case typeOSDMap:
			decode = func(p []byte) error { _, err := DecodeOSDMaps(p); return err }
			m, _ := DecodeOSDMaps(front)
			if m.Epoch() == 0 || m.Epoch() > m.Newest || len(m.Full)+len(m.Incremental) == 0 {
				t.Errorf("%s: epochs %d, %d to %d", v.Note, m.Epoch(), m.Oldest, m.Newest)
			}
			for epoch, blob := range m.Full {
				if got := le.Uint32(blob[28:]); got != epoch {
					t.Errorf("%s: map of epoch %d says %d", v.Note, epoch, got)
				}
			}
		case typeCommand:
			decode = func(p []byte) error { _, err := decodeCommand(p); return err }
			text, _ := decodeCommand(front)
			var fsid FSID
			copy(fsid[:], front[paxosSize:])
			m := commandMessage(v.TID, fsid, text, nil)
			if !bytes.Equal(m.Front, front) || m.Version != v.Version || m.CompatVersion != v.Compat {
				t.Errorf("%s: we make %x", v.Note, m.Front)
			}
		case typeCommandAck:
			decode = func(p []byte) error { _, _, err := decodeCommandAck(p); return err }
			result, status, _ := decodeCommandAck(front)
			if unknown := strings.Contains(v.Note, "unknown"); unknown != (result == -22 && status != "") {
				t.Errorf("%s: %d %q", v.Note, result, status)
			}
		default:
			continue
		}
		if err := decode(front); err != nil {
			t.Errorf("%s: %v", v.Note, err)
		}
		for n := range min(len(front), 22) {
			if err := decode(front[:n]); !errors.Is(err, errMessage) {
				t.Errorf("%s cut after %d: %v", v.Note, n, err)
			}
		}
	}
	for _, typ := range []uint16{typeMonMap, typeSubscribe, typeOSDMap, typeCommand, typeCommandAck} {
		if seen[typ] == 0 {
			t.Errorf("no message of type %d", typ)
		}
	}
}

var check = drivertest.Must

func TestMessagesComeBack(t *testing.T) {
	addrs, err := wire.ParseAddrVec("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]")
	check(t, err)
	back := func(want, got any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	subs := map[string]uint64{"monmap": 5, "osdmap": 0}
	gotSubs, err := decodeSubscribe(subscribeMessage(subs).Front)
	back(subs, gotSubs, err)
	_, payload, err := decodeAuth(authMessage(auth.Cephx, []byte("payload")).Front)
	back([]byte("payload"), payload, err)
	reply := authReply{method: 2, result: -13, globalID: 7, payload: []byte("x"), text: "no"}
	gotReply, err := decodeAuthReply(reply.message(3).Front)
	back(reply, gotReply, err)
	sent, waits := reply.message(3), &session{replies: make(chan authReply, 1)}
	(&Client{session: waits}).receive(nil, sent)
	clear(sent.Front) // the answer outlives its message
	back(reply, <-waits.replies, nil)
	m := MonMap{Epoch: 3, Changed: time.Unix(1000, 0).UTC(), Mons: []Mon{{"a", addrs}, {"b", addrs}, {"c", addrs}}}
	gotMap, err := decodeMonMap(m.AppendTo(nil))
	back(m, gotMap, err)
	m.AuthEpoch, m.Ciphers = 7, cephx.Ciphers{Allowed: []cephx.Kind{cephx.AES}, Service: cephx.AES256K, Preferred: cephx.AES}
	ours := m.AppendTo(nil)
	gotMap, err = decodeMonMap(ours)
	back(m, gotMap, err)
	for cut := range ours {
		if _, err := decodeMonMap(ours[:cut]); err == nil {
			t.Fatalf("%d of %d bytes of a monmap decode", cut, len(ours))
		}
	}
	end := le.AppendUint32(wire.AppendU32s([]byte{7, 0, 0, 0, 2, 0, 0, 0}, []uint32{1}), 1) // epoch, of services, allowed, preferred
	if !bytes.HasSuffix(ours, end) {
		t.Errorf("the end of the monmap is %x, want %x", ours[len(ours)-len(end):], end)
	}
}

// A core decodes what anybody sends to a monitor: the work for one message is bounded.
func TestRequestsToAMonitorAreBounded(t *testing.T) {
	subs := make(map[string]uint64)
	for i := range 2 * maxSubs {
		subs[strconv.Itoa(i)] = 1
	}
	if got, err := decodeSubscribe(subscribeMessage(subs).Front); len(got) != maxSubs || err != nil {
		t.Errorf("%d subscriptions, %v", len(got), err)
	}
	for more := range 2 {
		if _, err := decodeCommand(commandMessage(0, FSID{}, make([]byte, maxCommand+more), nil).Front); errors.Is(err, errMessage) != (more > 0) {
			t.Errorf("a command of %d bytes: %v", maxCommand+more, err)
		}
	}
}

func TestFSIDText(t *testing.T) {
	const text = "00112233-4455-6677-8899-aabbccddeeff"
	f, err := ParseFSID(text)
	if err != nil || f.String() != text || f[1] != 0x11 {
		t.Errorf("%v, %v", f, err)
	}
	for _, bad := range []string{"", "0011", text[1:], text + "00", "0011223344556677-8899-aabbccddeeff-"} {
		if f, err := ParseFSID(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v, %v", bad, f, err)
		}
	}
}

// The newest map counts: what was configured is tried first and for ever, what
// only an older map had is not.
func TestCandidatesAreThoseOfTheNewestMap(t *testing.T) {
	addr := func(s string) wire.Addr {
		a, err := wire.ParseAddr(s)
		check(t, err)
		return a
	}
	a, b, c := addr("v2:10.0.0.1:3300"), addr("v2:10.0.0.2:3300"), addr("v2:10.0.0.3:3300")
	old := addr("v1:10.0.0.4:6789")
	cl, err := NewClient(Config{Mons: []wire.Addr{b}})
	check(t, err)
	cl.session = &session{}
	for _, one := range []struct {
		has, want []wire.Addr
	}{
		{[]wire.Addr{a, b, c, c, old}, []wire.Addr{b, a, c}},
		{[]wire.Addr{c}, []wire.Addr{b, c}},
		{nil, []wire.Addr{b}},
	} {
		m := MonMap{Epoch: cl.monmap.Epoch + 1}
		for _, a := range one.has {
			m.Mons = append(m.Mons, Mon{"x", wire.AddrVec{a}})
		}
		check(t, cl.newMonMap(wire.AppendBlob(nil, m.AppendTo(nil))))
		if !slices.Equal(cl.mons, one.want) {
			t.Errorf("%v, want %v", cl.mons, one.want)
		}
	}
	newest := cl.monmap
	for _, m := range []MonMap{{Epoch: newest.Epoch - 1}, {Epoch: newest.Epoch + 1, FSID: FSID{1}}} { // older, of another cluster
		if err := cl.newMonMap(wire.AppendBlob(nil, m.AppendTo(nil))); !errors.Is(err, errMessage) || cl.monmap.Epoch != newest.Epoch {
			t.Errorf("monmap %d of %v: %v", m.Epoch, m.FSID, err)
		}
	}
}

// Who knows monitors by v1 addresses alone speaks msgr1 with all daemons that have it.
func TestTheAddressOfADaemonIsOfTheProtocolOfTheMonitors(t *testing.T) {
	v2 := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	v1 := v2.WithType(wire.AddrLegacy)
	for _, c := range []struct {
		mons, has []wire.Addr
		want      wire.Addr
	}{
		{[]wire.Addr{v2}, []wire.Addr{v1, v2}, v2}, {[]wire.Addr{v1}, []wire.Addr{v2, v1}, v1}, {[]wire.Addr{v1, v2}, []wire.Addr{v1, v2}, v2},
		{[]wire.Addr{v2}, []wire.Addr{v1}, v1}, {[]wire.Addr{v1}, []wire.Addr{v2}, v2}, {[]wire.Addr{v1}, nil, wire.Addr{}},
	} {
		if got := prefer(c.mons, c.has); got != c.want {
			t.Errorf("monitors %v, daemon %v: %v", c.mons, c.has, got)
		}
	}
}

// A map of epoch 0 is none: those who ask are heard, and get nothing.
func TestAMapOfEpoch0IsNotSent(t *testing.T) {
	d := NewServer(ServerConfig{Map: func() MonMap { return MonMap{} }})
	for _, m := range []*control.Message{
		message(typeMonGetMap, 0, 1, nil), subscribeMessage(map[string]uint64{"monmap": 0}),
	} {
		if !d.Fast(nil, m) { // to send would need a connection
			t.Errorf("message of type %d was left to others", m.Type)
		}
	}
}

// Matrix: HI-11
func FuzzDecode(f *testing.F) {
	for _, v := range captured.Read(f) {
		f.Add(v.Type, []byte(v.Front))
	}
	f.Add(uint16(typeAuth), authMessage(auth.Cephx, []byte{1, 2}).Front)
	f.Add(uint16(typeAuthReply), (&authReply{method: 2, globalID: 7, payload: []byte{3}}).message(1).Front)
	f.Fuzz(func(t *testing.T, typ uint16, p []byte) {
		switch typ {
		case typeMonMap:
			m, err := decodeMonMap(wire.NewReader(p).Blob())
			if err != nil {
				return
			}
			if again, err := decodeMonMap(m.AppendTo(nil)); err != nil || len(again.Mons) != len(m.Mons) {
				t.Errorf("%+v, %v", again, err)
			}
		case typeSubscribe:
			_, _ = decodeSubscribe(p)
		case typeOSDMap:
			_, _ = DecodeOSDMaps(p)
		case typeCommand:
			_, _ = decodeCommand(p)
		case typeCommandAck:
			_, _, _ = decodeCommandAck(p)
		case typeAuth:
			_, _, _ = decodeAuth(p)
		default:
			_, _ = decodeAuthReply(p)
		}
	})
}
