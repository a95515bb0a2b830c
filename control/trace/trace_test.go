package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var (
	addr  = wire.Addr{Type: wire.AddrMsgr2, Nonce: 7, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	addrs = wire.AddrVec{addr}
)

var must = drivertest.Must

// samples are one frame of each tag.
var samples = map[frame.Tag][]byte{
	frame.TagHello:                wire2.Hello{EntityType: wire.OSD, PeerAddr: addr}.AppendTo(nil),
	frame.TagAuthRequest:          wire2.AuthRequest{Method: 2, PreferredModes: []uint32{2, 1}, Payload: []byte("secret")}.AppendTo(nil),
	frame.TagAuthBadMethod:        wire2.AuthBadMethod{Method: 1, Result: -13, AllowedMethods: []uint32{2}, AllowedModes: []uint32{1}}.AppendTo(nil),
	frame.TagAuthReplyMore:        wire2.AuthMore{Payload: []byte("secret")}.AppendTo(nil),
	frame.TagAuthRequestMore:      wire2.AuthMore{Payload: []byte("secret")}.AppendTo(nil),
	frame.TagAuthDone:             wire2.AuthDone{GlobalID: 1 << 60, Mode: 2, Payload: []byte("secret")}.AppendTo(nil),
	frame.TagAuthSignature:        wire2.AuthSignature{1}.AppendTo(nil),
	frame.TagClientIdent:          wire2.ClientIdent{Addrs: addrs, TargetAddr: addr, GID: -1, GlobalSeq: 1, Supported: wire.FeaturesPacific, Flags: 1, Cookie: 1<<63 + 1}.AppendTo(nil),
	frame.TagServerIdent:          wire2.ServerIdent{Addrs: addrs, GID: 3, GlobalSeq: 1, Cookie: 1<<63 + 1}.AppendTo(nil),
	frame.TagIdentMissingFeatures: wire2.IdentMissingFeatures{Features: 1 << 61}.AppendTo(nil),
	frame.TagSessionReconnect:     wire2.SessionReconnect{Addrs: addrs, ClientCookie: 1, ServerCookie: 2, GlobalSeq: 3, ConnectSeq: 4, MsgSeq: 5}.AppendTo(nil),
	frame.TagSessionReconnectOK:   wire2.SessionReconnectOK{MsgSeq: 5}.AppendTo(nil),
	frame.TagSessionRetry:         wire2.SessionRetry{ConnectSeq: 5}.AppendTo(nil),
	frame.TagSessionRetryGlobal:   wire2.SessionRetryGlobal{GlobalSeq: 5}.AppendTo(nil),
	frame.TagSessionReset:         wire2.SessionReset{Full: true}.AppendTo(nil),
	frame.TagWait:                 nil,
	frame.TagMessage:              message(9),
	frame.TagKeepalive2:           {1, 0, 0, 0, 2, 0, 0, 0},
	frame.TagKeepalive2Ack:        {0, 0, 0, 0, 0, 0, 0, 0},
	frame.TagAck:                  {9, 0, 0, 0, 0, 0, 0, 0},
	frame.TagCompressionRequest:   wire2.CompressionRequest{Compress: true, Preferred: []uint32{3}}.AppendTo(nil),
	frame.TagCompressionDone:      wire2.CompressionDone{Compress: true, Method: 3}.AppendTo(nil),
}

func message(seq uint64) []byte {
	var p [frame.MessageHeaderSize]byte
	frame.MessageHeader{Seq: seq, TID: 1, Type: 42}.Put(&p)
	return p[:]
}

func TestARecordOfEachFrameSurvivesJSON(t *testing.T) {
	for tag, p := range samples {
		r := Record{Time: time.Unix(1, 2).UTC(), Socket: 1, From: Acceptor, Protocol: "msgr2.1"}
		r.describe2(tag, &segments{p, []byte("front"), nil, []byte("data")}, 2)
		if r.Error != "" || r.Tag != tag.String() || (r.Fields == nil) != (tag == frame.TagWait) {
			t.Errorf("%v: %+v", tag, r)
		}
		line, err := json.Marshal(&r)
		must(t, err)
		for _, secret := range []string{"secret", "736563726574", "c2VjcmV0"} {
			if strings.Contains(string(line), secret) {
				t.Errorf("%v: bytes of the authentication in %s", tag, line)
			}
		}
		var back Record
		if err := json.Unmarshal(line, &back); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%v: %+v, %v, want %+v", tag, back, err, r)
		}
	}
	if len(samples) != int(frame.TagCompressionDone) {
		t.Errorf("%d samples of %d tags", len(samples), frame.TagCompressionDone)
	}
}

func TestPayloadIsCut(t *testing.T) {
	seg := segments{message(1), []byte("front"), nil, []byte("data")}
	for cut, want := range map[int][]string{2: {"6672", "", "6461"}, 9: {"66726f6e74", "", "64617461"}, 0: nil, -1: nil} {
		var r Record
		if r.describe2(frame.TagMessage, &seg, cut); !reflect.DeepEqual(r.Payload, want) {
			t.Errorf("%d bytes: %q, want %q", cut, r.Payload, want)
		}
		if !reflect.DeepEqual(r.Segments, []int{41, 5, 0, 4}) {
			t.Errorf("lengths %v", r.Segments)
		}
	}
}

func TestAMalformedFrameIsRecordedAsSuch(t *testing.T) {
	for tag, p := range samples {
		if len(p) == 0 {
			continue
		}
		var r Record
		if r.describe2(tag, &segments{p[:len(p)-1]}, 0); r.Error == "" || r.Fields != nil {
			t.Errorf("%v without its last byte: %+v", tag, r)
		}
	}
}

// lines are the records of a file.
func lines(t *testing.T, path string) (all []Record) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%v in %q", err, s.Text())
		}
		all = append(all, r)
	}
	return all
}

func TestTheFileOfATraceIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	const bound = 4 << 10
	l, err := Create(path, Options{MaxBytes: bound})
	must(t, err)
	s := l.Trace(probe.TracedSocket{})
	for i := range uint64(1000) {
		s.Frame(probe.Frame{Tag: frame.TagMessage, Seg: segments{message(i + 1)}})
	}
	s.Ended(errors.New("enough"))
	s.Frame(probe.Frame{Tag: frame.TagAck}) // after the end
	must(t, l.Close())
	s.Ended(nil) // after the end of the trace
	var all []Record
	for _, name := range []string{path + ".1", path} {
		if st, err := os.Stat(name); err != nil || st.Size() > bound || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		all = append(all, lines(t, name)...)
	}
	if last := all[len(all)-1]; last.Event != End || last.Error != "enough" {
		t.Errorf("it ends with %+v", last)
	}
	next := all[0].Fields.Seq
	for _, r := range all[:len(all)-1] {
		if seq := r.Fields.Seq; seq != next {
			t.Fatalf("message %d, want %d", seq, next)
		}
		next++
	}
	if next != 1001 {
		t.Errorf("the last messages are missing: %d", next)
	}
}

func TestAFullQueueLosesRecordsAndSaysHowManyAndWhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	l := &Log{opt: Options{Now: time.Now}, queue: make(chan entry, 2), done: make(chan struct{}), out: rotating{path: path, most: 1 << 20}}
	must(t, l.out.open())
	l.pipe = l.out.file
	for range 5 {
		l.put(Record{Event: Frame}) // no goroutine writes yet
	}
	<-l.queue
	l.put(Record{Event: Bad}) // behind three that are lost
	l.put(Record{Event: Frame})
	go l.write()
	must(t, l.Close())
	got := ""
	for _, r := range lines(t, path) {
		got += fmt.Sprintf("%s %d ", r.Event, r.Count)
	}
	if got != "frame 0 lost 3 bad 0 lost 1 " {
		t.Errorf("the trace has %s", got)
	}
}

func TestATraceKeepsTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	for range 2 {
		l, err := Create(path, Options{})
		must(t, err)
		l.Trace(probe.TracedSocket{Accepted: true})
		must(t, l.Close())
	}
	for _, name := range []string{path, path + ".1"} {
		if got := lines(t, name); len(got) != 1 || got[0].Event != Open || got[0].Recorder != Acceptor {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := Create(filepath.Join(path, "below"), Options{}); err == nil {
		t.Error("a trace below a file")
	}
}

// A trace has a file of its own, in place of one that was there. Keys are appended to a file that
// nobody else can read. No link leads either to another file of ours.
func TestOthersCannotReadATraceNorKeysNorChooseTheirFile(t *testing.T) {
	const no fs.FileMode = 0 // file
	for _, c := range []struct {
		text        string
		mode        fs.FileMode // of the file that is there
		link        string      // the path is a link to it
		trace, keys bool        // can be written there
	}{
		{"", no, "", true, true},
		{"", 0o644, "", true, false}, // as one that a shell has made
		{"", 0o600, "", true, true},  // as one of mktemp
		{"something", 0o644, "", true, false},
		{"something", 0o640, "", true, false},
		{"something", 0o600, "", true, true},
		{"something", 0o600, "symbolic", false, false},
		{"something", 0o644, "symbolic", false, false},
		{"something", 0o600, "hard", true, false}, // of another file of ours, as anybody may make it
	} {
		for _, keys := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "file")
			at := path
			if c.link != "" {
				at += ".else"
			}
			if c.mode != no {
				must(t, os.WriteFile(at, []byte(c.text), c.mode))
			}
			switch c.link {
			case "symbolic":
				must(t, os.Symlink(at, path))
			case "hard":
				must(t, os.Link(at, path))
			}
			var err error
			good := c.trace
			if keys {
				var f *os.File
				if f, err = CreateKeys(path); err == nil {
					_, err = f.WriteString("+")
					err = errors.Join(err, f.Close())
				}
				good = c.keys
			} else {
				var l *Log
				if l, err = Create(path, Options{}); err == nil {
					err = l.Close()
				}
			}
			if (err == nil) != good {
				t.Errorf("%+v, keys %v: %v", c, keys, err)
			}
			if st, e := os.Stat(path); err == nil && (e != nil || st.Mode().Perm() != 0o600) {
				t.Errorf("%+v, keys %v: %v, %v", c, keys, st.Mode(), e)
			}
			want := c.text
			if keys && good {
				want += "+"
			} else if !keys && c.text != "" && good && c.link == "" {
				at += ".1"
			}
			if p, e := os.ReadFile(at); c.mode != no && (e != nil || string(p) != want) {
				t.Errorf("%+v, keys %v: %q, %v", c, keys, p, e)
			}
		}
	}
}

// A pipe may be there, or a link to one, as /dev/stderr is; but another user has made neither.
func TestNoOtherUserChoosesThePipe(t *testing.T) {
	for _, c := range []struct {
		pipe, link int // their owners, -1: there is no link
		good       bool
	}{{0, -1, true}, {1, -1, false}, {0, 0, true}, {1, 0, true}, {0, 1, false}, {1, 1, false}} {
		path := filepath.Join(t.TempDir(), "pipe")
		must(t, syscall.Mkfifo(path, 0o600))
		if err := os.Chown(path, c.pipe, 0); err != nil {
			t.Skipf("only root can give files away: %v", err)
		}
		reader, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		if c.link >= 0 {
			to := path
			path += ".link"
			must(t, errors.Join(os.Symlink(to, path), os.Lchown(path, c.link, 0)))
		}
		f, err := CreateKeys(path)
		if (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
		must(t, reader.Close())
		if err == nil {
			must(t, f.Close())
		}
	}
}

func TestAPipeThatNobodyReadsHoldsUpNeitherTheStartNorTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(path, 0o600))
	if _, err := Create(path, Options{}); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("without a reader: %v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer reader.Close()
	l, err := Create(path, Options{})
	must(t, err)
	l.patience = time.Millisecond
	for range 1000 {
		l.Trace(probe.TracedSocket{})
	}
	if err := l.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("full: %v", err)
	}
}

// A device has no bound, behind which it would have another name.
func TestWhatAFullDiskLosesIsAnErrorAtTheEndAndADeviceKeepsItsName(t *testing.T) {
	for device, full := range map[string]bool{"/dev/full": true, os.DevNull: false} {
		path := filepath.Join(t.TempDir(), "link")
		must(t, os.Symlink(device, path))
		l, err := Create(path, Options{MaxBytes: 1})
		must(t, err)
		for range 3 {
			l.Trace(probe.TracedSocket{})
		}
		if err := l.Close(); (err != nil) != full {
			t.Errorf("%s: %v", device, err)
		}
		if to, err := os.Readlink(path); to != device {
			t.Errorf("%q in place of %s, %v", to, device, err)
		}
	}
}

// Bytes that only begin like a frame are passed over, and the possible beginning of a frame is
// kept.
func TestTheNextFrameIsFoundBehindDamage(t *testing.T) {
	old := frame1.Config{}
	enc, dec := frame1.NewEncoder(old, nil, [136]byte{}), frame1.NewDecoder(old, nil, frame.Limits{})
	two, err := frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagAck, make([]byte, 8))
	must(t, err)
	for name, c := range map[string]struct {
		whole []byte
		head  int // bytes that tell it
		find  func(p []byte) (int, bool)
	}{
		"msgr2": {two, frame.PreambleSize, preambleAt},
		"msgr1": {enc.AppendMessage(nil, &frame1.Header{}, nil, nil, nil), 1 + old.HeaderSize(), func(p []byte) (int, bool) { return headerAt(p, dec) }},
	} {
		damaged := bytes.Clone(c.whole[:c.head])
		damaged[c.head-1]++
		p := append(damaged, c.whole...)
		if at, ok := c.find(p); at != c.head || !ok {
			t.Errorf("%s: found at %d, %t; want %d", name, at, ok, c.head)
		}
		if at, ok := c.find(p[:2*c.head-1]); at != c.head || ok {
			t.Errorf("%s: with a byte missing %d bytes are passed over, %t; want %d", name, at, ok, c.head)
		}
	}
}

// Noise before the first frame of a connection that was joined is looked at once, however small its pieces are, and is
// counted. A search that finds nothing ends.
func TestTheFirstFrameIsSearchedInNewBytesAlone(t *testing.T) {
	two, err := frame.NewEncoder(frame.Rev1).AppendFrame(nil, frame.TagAck, make([]byte, 8))
	must(t, err)
	one := frame1.NewEncoder(frame1.Config{}, nil, [136]byte{}).AppendMessage(nil, &frame1.Header{}, nil, nil, nil)
	for name, begins := range map[string][]byte{"msgr2": two, "msgr1": one, "nothing": nil} {
		var got []Record
		c := NewStreams(time.Unix(1, 0), TCP{}, func() uint64 { return 1 }, StreamOptions{Emit: func(r Record) { got = append(got, r) }})
		const noise = 64 << 10
		feed := func(b byte) {
			c.Data(time.Unix(1, 0), Acceptor, []byte{b})
			if d := c.dirs[1]; c.proto == nil && len(d.buf) > 1+frame1.OldHeaderSize+len(begins) {
				t.Fatalf("%s: %d bytes are looked at again", name, len(d.buf))
			}
		}
		for range noise {
			feed(0xee)
		}
		for _, b := range begins {
			feed(b)
		}
		if begins == nil {
			for range maxUnknown {
				feed(0xee)
			}
			if d := c.dirs[1]; !d.dead || len(got) > 0 {
				t.Errorf("%s: it is searched for: %v, %+v", name, !d.dead, got)
			}
			continue
		}
		if len(got) != 3 || got[1].Event != Lost || got[1].Count != noise || got[2].Event != Frame || got[2].Error != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
