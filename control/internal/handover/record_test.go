package handover

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/layout"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

func someSession() Session {
	addr := wire.Addr{Type: wire.AddrMsgr2, Nonce: 77, AddrPort: netip.MustParseAddrPort("[2001:db8::1]:6800")}
	other := wire.Addr{Type: wire.AddrMsgr2, Nonce: 77, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	s := Session{
		Peer: session.Peer{
			Target: addr, Dialled: true, Near: true, Type: wire.OSD, Addrs: wire.AddrVec{addr, other},
			Entity: who, Proven: true, Number: -3, NumberKnown: true,
		},
		Once: true, PolicyName: "lossless-peer", Policy: session.Policy{Standby: true, Register: true, Supported: 1 << 60, Required: 4},
		Record:        session.Record{ClientCookie: 1<<64 - 1, ServerCookie: 2, ToldSeq: 8, Told: []uint32{6, 8, 9}, Opened: 8},
		PeerGlobalSeq: 3, ConnectSeq: 4, Features: 5,
		IO: dataplane.HandlerState{InSeq: 6, OutSeq: 7},
	}
	for i, n := range []int{0, 1, payloadMax, payloadMax + 1, 3 * payloadMax} {
		m := dataplane.NewMessage(uint16(i), nil, nil)
		m.Priority, m.Version, m.CompatVersion, m.TID, m.DataOff = 63, 8, 7, uint64(i)<<40, 9
		m.Middle = bytes.Repeat([]byte{byte(i)}, n)
		if n > 1 {
			m.Front, m.Data = bytes.Repeat([]byte{1}, 11), bytes.Repeat([]byte{2}, n-1)
		}
		list := []*[]*dataplane.Message{&s.IO.Sent, &s.IO.Sent, &s.IO.Replay, &s.IO.Queued, &s.IO.Queued}[i]
		*list = append(*list, m)
	}
	return s
}

func reader(p []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(p)) }

// sessionsRecords is what a predecessor sends behind the successor's ready.
func sessionsRecords(t testing.TB, list []Session) []byte {
	t.Helper()
	var b bytes.Buffer
	d := Done{Last: Attempts{Msgr2: 9, Msgr1: 10}}
	for i := range list {
		n, err := list[i].Write(&b)
		must(t, err)
		d.Sessions++
		d.Messages += n
	}
	must(t, writeRecord(&b, recordDone, func(p []byte) []byte { return layout.Append(p, &d) }))
	return b.Bytes()
}

// Processes of one version of the conversation understand each other, whatever their release: the
// bytes of its records do not change.
func TestTheBytesOfVersion2StayAsTheyAre(t *testing.T) {
	s := someSession()
	h, o := Hello{Entity: who, Nonce: 5, AnyNonce: true}, Offer{Entity: who, Nonce: 1, Number: -1, Bound: true, Addrs: s.Peer.Addrs, Listeners: 3, Steering: 6}
	sum := sha256.New()
	for _, p := range [][]byte{layout.Append(nil, &h), layout.Append(nil, &o), sessionsRecords(t, []Session{s})} {
		sum.Write(p)
	}
	if got, want := hex.EncodeToString(sum.Sum(nil)), "fe55481fd1c65733bcbf8a5a3256c090ba58b7db2cd37401bdc1489332b7f5e0"; got != want {
		t.Errorf("records of version %d have sum %s, want %s", handoverVersion, got, want)
	}
}

// A process of a later version may send a longer record.
func TestALongerRecordIsUnderstood(t *testing.T) {
	want := someSession()
	p := layout.Append(nil, &sessionRecord{&want, [3]uint32{2, 1, 2}})
	got := sessionRecord{Session: new(Session)}
	if err := decode(append(p, make([]byte, 30)...), recordSession, &got); err != nil || got.lens != [3]uint32{2, 1, 2} || got.Record.Opened != want.Record.Opened {
		t.Errorf("messages %v, opened by %d, %v", got.lens, got.Record.Opened, err)
	}
}

// headersOf are the fields of each message of a session that stand beside the payload.
func headersOf(s Session) (list [][6]uint64) {
	for _, m := range slices.Concat(s.IO.Sent, s.IO.Replay, s.IO.Queued) {
		list = append(list, [6]uint64{uint64(m.Type), uint64(m.Priority), uint64(m.Version), uint64(m.CompatVersion), uint64(m.DataOff), m.TID})
	}
	return list
}

func TestSessionsComeBackAsTheyWere(t *testing.T) {
	plain := Session{Policy: session.Policy{Server: true, ResetCheck: true}}
	plain.Peer.Target, plain.Peer.Anonymous = wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("1.2.3.4:5")}, true
	for _, list := range [][]Session{nil, {plain}, {someSession(), plain, someSession()}} {
		in := sessionsRecords(t, list)
		got, d, err := readSessions(reader(in))
		must(t, err)
		if d.Last != (Attempts{9, 10}) || len(got) != len(list) {
			t.Errorf("%+v, %d sessions", d, len(got))
		}
		if again := sessionsRecords(t, got); !bytes.Equal(in, again) {
			t.Error("sessions differ on the wire")
		}
		for i := range got {
			a, b := got[i], list[i]
			if x, y := headersOf(a), headersOf(b); !slices.Equal(x, y) {
				t.Errorf("messages came as %v, want %v", x, y)
			}
			a.IO, b.IO = dataplane.HandlerState{}, dataplane.HandlerState{}
			if !reflect.DeepEqual(a, b) {
				t.Errorf("got %+v, want %+v", a, b)
			}
		}
	}
}

// decoded decodes the payload of a record.
func decoded[T any, P interface {
	*T
	layout.Structure
}](t recordType, p []byte) (v T, err error) {
	err = decode(p, t, P(&v))
	return v, err
}

func onlyError[T any](_ T, err error) error { return err }

func wantHandOver(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrHandOver) {
		t.Errorf("%s: %v", what, err)
	}
}

func TestIdentityComesBackAsItWas(t *testing.T) {
	h := Hello{Entity: wire.EntityName{Type: wire.Mon, ID: "a"}, Nonce: 5}
	if got, err := decoded[Hello](recordHello, layout.Append(nil, &h)); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	o := Offer{Entity: h.Entity, Nonce: 1, Number: -1, Bound: true, Addrs: someSession().Peer.Addrs, Listeners: 3, Steering: 6}
	if got, err := decoded[Offer](recordOffer, layout.Append(nil, &o)); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v", got, err)
	}
	o.Listeners = filesMax + 1
	wantHandOver(t, "too many descriptors", onlyError(decoded[Offer](recordOffer, layout.Append(nil, &o))))
	p := layout.Append(nil, &h)
	p[8]++ // version
	wantHandOver(t, "another version", onlyError(decoded[Hello](recordHello, p)))
	p[0]++ // magic
	wantHandOver(t, "something else", onlyError(decoded[Hello](recordHello, p)))
}

func TestBrokenSessionsAreRefused(t *testing.T) {
	whole := sessionsRecords(t, []Session{someSession()})
	for n := 0; n < len(whole); n += 1 + n/7 {
		if _, _, err := readSessions(reader(whole[:n])); !errors.Is(err, ErrHandOver) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	record := func(t recordType, p []byte) []byte {
		var b bytes.Buffer
		_ = writeRecord(&b, t, func(dst []byte) []byte { return append(dst, p...) }) // a buffer takes all
		return b.Bytes()
	}
	short, blank := someSession(), someSession()
	short.IO.OutSeq = 1 // two were sent
	blank.Peer.Target = wire.Addr{}
	message := record(recordMessage, make([]byte, 18+12))
	huge := bytes.Clone(message)
	huge[len(huge)-1] = 0xff
	wrong := Done{Sessions: 1}
	for name, p := range map[string][]byte{
		"sent more than its sequence": sessionsRecords(t, []Session{short}),
		"no address":                  sessionsRecords(t, []Session{blank}),
		"wrong count":                 record(recordDone, layout.Append(nil, &wrong)),
		"message without a session":   message,
		"unknown record":              {99, 0, 0, 0, 0},
		"record too long":             {byte(recordSession), 0, 0, 0, 1},
		"refusal":                     record(recordRefused, []byte("no")),
	} {
		_, _, err := readSessions(reader(p))
		wantHandOver(t, name, err)
	}
	if _, err := readMessage(reader(huge)); err == nil || !strings.Contains(err.Error(), "a segment of 4278190080 bytes") {
		t.Errorf("segment too long: %v", err)
	}
	two := append(record(recordMessage, append(make([]byte, 18), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), record(recordPayload, []byte("ab"))...)
	wantHandOver(t, "more payload than announced", onlyError(readMessage(reader(two))))
	large := func([]byte) []byte { return make([]byte, recordHead+recordMax+1) }
	wantHandOver(t, "record too long to write", writeRecord(new(bytes.Buffer), recordDone, large))
}

// Matrix: IN-07
func TestARecordIsPutTogetherInTheRoomOfItsBuffer(t *testing.T) {
	s := someSession()
	s.IO = dataplane.HandlerState{Queued: []*dataplane.Message{dataplane.NewMessage(1, []byte("front"), []byte("data"))}}
	w := bufio.NewWriterSize(io.Discard, payloadMax)
	if n := testing.AllocsPerRun(10, func() { _, _ = s.Write(w); _ = w.Flush() }); n > 0 {
		t.Errorf("%v pieces of memory for a session and its message", n)
	}
}

// FuzzSessions feeds what a predecessor sends: nothing panics, and what is
// accepted is written again as it was read.
func FuzzSessions(f *testing.F) {
	f.Add(sessionsRecords(f, nil))
	small := someSession()
	small.IO.Replay, small.IO.Queued = nil, nil
	f.Add(sessionsRecords(f, []Session{small, small}))
	small.IO.Sent = nil
	f.Add(sessionsRecords(f, []Session{small}))
	f.Fuzz(func(t *testing.T, p []byte) {
		list, d, err := readSessions(reader(p))
		if err != nil {
			if !errors.Is(err, ErrHandOver) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if int(d.Sessions) != len(list) {
			t.Fatal(fmt.Sprint(d, len(list)))
		}
		again, _, err := readSessions(reader(sessionsRecords(t, list)))
		if err != nil || len(again) != len(list) {
			t.Fatalf("written and read again: %v", err)
		}
	})
}

// FuzzHandOverIdentity feeds the records of the first phase.
func FuzzHandOverIdentity(f *testing.F) {
	h := Hello{Entity: wire.EntityName{Type: wire.OSD, ID: "0"}, AnyNonce: true}
	o := Offer{Entity: h.Entity, Addrs: someSession().Peer.Addrs, Listeners: 2}
	f.Add(layout.Append(nil, &h))
	f.Add(layout.Append(nil, &o))
	f.Fuzz(func(t *testing.T, p []byte) {
		if got, err := decoded[Hello](recordHello, p); err == nil {
			if again, err := decoded[Hello](recordHello, layout.Append(nil, &got)); err != nil || again != got {
				t.Fatalf("%+v, %v", again, err)
			}
		}
		if got, err := decoded[Offer](recordOffer, p); err == nil && (got.Listeners > filesMax || got.Steering > filesMax) {
			t.Fatalf("%+v", got)
		}
	})
}
