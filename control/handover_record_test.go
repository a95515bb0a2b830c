package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

func someSession() session {
	addr := wire.Addr{Type: wire.AddrMsgr2, Nonce: 77, AddrPort: netip.MustParseAddrPort("[2001:db8::1]:6800")}
	other := wire.Addr{Type: wire.AddrMsgr2, Nonce: 77, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	s := session{
		target: addr, once: true, peerType: wire.OSD, peerAddrs: wire.AddrVec{addr, other},
		peerEntity: wire.EntityName{Type: wire.OSD, ID: "3"}, peerNumber: -3, known: true,
		policy: "lossless-peer", standby: true, register: true, supported: 1 << 60, require: 4,
		clientCookie: 1<<64 - 1, serverCookie: 2, peerGlobalSeq: 3, connectSeq: 4, features: 5,
		io: dataplane.HandlerState{InSeq: 6, OutSeq: 7},
	}
	for i, n := range []int{0, 1, payloadMax, payloadMax + 1, 3 * payloadMax} {
		m := NewMessage(uint16(i), nil, nil)
		m.Priority, m.Version, m.CompatVersion, m.TID, m.DataOff = 63, 8, 7, uint64(i)<<40, 9
		m.Middle = bytes.Repeat([]byte{byte(i)}, n)
		if n > 1 {
			m.Front, m.Data = bytes.Repeat([]byte{1}, 11), bytes.Repeat([]byte{2}, n-1)
		}
		list := []*[]*Message{&s.io.Sent, &s.io.Sent, &s.io.Replay, &s.io.Queued, &s.io.Queued}[i]
		*list = append(*list, m)
	}
	return s
}

// sessionsRecords is what a predecessor sends behind the successor's ready.
func sessionsRecords(t testing.TB, list []session) []byte {
	t.Helper()
	var b bytes.Buffer
	d := done{globalSeq: 9}
	for i := range list {
		n, err := list[i].write(&b)
		if err != nil {
			t.Fatal(err)
		}
		d.sessions++
		d.messages += n
	}
	if err := writeRecord(&b, recordDone, d.appendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSessionsComeBackAsTheyWere(t *testing.T) {
	plain := session{target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("1.2.3.4:5")}, anonymous: true, server: true, resetCheck: true}
	for _, list := range [][]session{nil, {plain}, {someSession(), plain, someSession()}} {
		in := sessionsRecords(t, list)
		got, d, err := readSessions(bytes.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		if d.globalSeq != 9 || len(got) != len(list) {
			t.Errorf("%+v, %d sessions", d, len(got))
		}
		if again := sessionsRecords(t, got); !bytes.Equal(in, again) {
			t.Error("sessions differ on the wire")
		}
		for i := range got {
			a, b := got[i], list[i]
			a.io, b.io = dataplane.HandlerState{}, dataplane.HandlerState{}
			if !reflect.DeepEqual(a, b) {
				t.Errorf("got %+v, want %+v", a, b)
			}
		}
	}
}

func TestIdentityComesBackAsItWas(t *testing.T) {
	h := hello{entity: wire.EntityName{Type: wire.Mon, ID: "a"}, nonce: 5}
	if got, err := decodeHello(h.appendTo(nil)); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	o := offer{entity: h.entity, nonce: 1, number: -1, bound: true, addrs: someSession().peerAddrs, listeners: 3, steering: 6}
	if got, err := decodeOffer(o.appendTo(nil)); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v", got, err)
	}
	o.listeners = filesMax + 1
	if _, err := decodeOffer(o.appendTo(nil)); !errors.Is(err, ErrHandOver) {
		t.Errorf("too many descriptors: %v", err)
	}
	p := h.appendTo(nil)
	p[8]++ // version
	if _, err := decodeHello(p); !errors.Is(err, ErrHandOver) {
		t.Errorf("another version: %v", err)
	}
	p[0]++ // magic
	if _, err := decodeHello(p); !errors.Is(err, ErrHandOver) {
		t.Errorf("something else: %v", err)
	}
}

func TestBrokenSessionsAreRefused(t *testing.T) {
	whole := sessionsRecords(t, []session{someSession()})
	for n := 0; n < len(whole); n += 1 + n/7 {
		if _, _, err := readSessions(bytes.NewReader(whole[:n])); !errors.Is(err, ErrHandOver) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	record := func(t recordType, p []byte) []byte {
		var b bytes.Buffer
		_ = writeRecord(&b, t, p) // a buffer takes all
		return b.Bytes()
	}
	short, blank := someSession(), someSession()
	short.io.OutSeq = 1 // two were sent
	blank.target = wire.Addr{}
	message := record(recordMessage, make([]byte, 18+12))
	huge := bytes.Clone(message)
	huge[len(huge)-1] = 0xff
	wrong := done{sessions: 1}
	for name, p := range map[string][]byte{
		"sent more than its sequence": sessionsRecords(t, []session{short}),
		"no address":                  sessionsRecords(t, []session{blank}),
		"wrong count":                 record(recordDone, wrong.appendTo(nil)),
		"message without a session":   message,
		"unknown record":              {99, 0, 0, 0, 0},
		"record too long":             {byte(recordSession), 0, 0, 0, 1},
		"refusal":                     record(recordRefused, []byte("no")),
	} {
		if _, _, err := readSessions(bytes.NewReader(p)); !errors.Is(err, ErrHandOver) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readMessage(bytes.NewReader(huge)); !errors.Is(err, ErrHandOver) {
		t.Errorf("segment too long: %v", err)
	}
	two := append(record(recordMessage, append(make([]byte, 18), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), record(recordPayload, []byte("ab"))...)
	if _, err := readMessage(bytes.NewReader(two)); !errors.Is(err, ErrHandOver) {
		t.Errorf("more payload than announced: %v", err)
	}
	if err := writeRecord(io.Discard, recordPayload, make([]byte, recordMax+1)); !errors.Is(err, ErrHandOver) {
		t.Errorf("record too long to write: %v", err)
	}
}

// FuzzSessions feeds what a predecessor sends: nothing panics, and what is
// accepted is written again as it was read.
func FuzzSessions(f *testing.F) {
	f.Add(sessionsRecords(f, nil))
	small := someSession()
	small.io.Replay, small.io.Queued = nil, nil
	f.Add(sessionsRecords(f, []session{small, small}))
	small.io.Sent = nil
	f.Add(sessionsRecords(f, []session{small}))
	f.Fuzz(func(t *testing.T, p []byte) {
		list, d, err := readSessions(bytes.NewReader(p))
		if err != nil {
			if !errors.Is(err, ErrHandOver) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if int(d.sessions) != len(list) {
			t.Fatal(fmt.Sprint(d, len(list)))
		}
		again, _, err := readSessions(bytes.NewReader(sessionsRecords(t, list)))
		if err != nil || len(again) != len(list) {
			t.Fatalf("written and read again: %v", err)
		}
	})
}

// FuzzHandOverIdentity feeds the records of the first phase.
func FuzzHandOverIdentity(f *testing.F) {
	h := hello{entity: wire.EntityName{Type: wire.OSD, ID: "0"}, anyNonce: true}
	o := offer{entity: h.entity, addrs: someSession().peerAddrs, listeners: 2}
	f.Add(h.appendTo(nil))
	f.Add(o.appendTo(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		if got, err := decodeHello(p); err == nil {
			if again, err := decodeHello(got.appendTo(nil)); err != nil || again != got {
				t.Fatalf("%+v, %v", again, err)
			}
		}
		if got, err := decodeOffer(p); err == nil && (got.listeners > filesMax || got.steering > filesMax) {
			t.Fatalf("%+v", got)
		}
	})
}
