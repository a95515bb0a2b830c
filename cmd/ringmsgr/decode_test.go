package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/ringmsgr/internal/traffic"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

// The recordings are of real daemons, Ceph 16.2.15, by tcpdump on the loopback: the
// command "ceph" with a monitor in msgr2 and in msgr1, and "ringmsgr ping --rev 0" in
// mode secure, with its key.
const recordings = "testdata/capture/"

// Matrix: OB-10
func TestRecordingsOfRealDaemonsAreDecoded(t *testing.T) {
	for name, args := range map[string]string{
		"decode-msgr2":  recordings + "msgr2.pcap",
		"decode-msgr1":  recordings + "msgr1.pcap",
		"decode-secure": "--keys " + recordings + "secure.keys " + recordings + "secure.pcap",
		"decode-sealed": recordings + "secure.pcap",
		"decode-brief":  "--brief " + recordings + "msgr2.pcap",
		"decode-json":   "--json --cut 2 " + recordings + "msgr2.pcap",
	} {
		golden(t, name, ringmsgr(t, append([]string{"decode"}, strings.Fields(args)...)...).want(t, cli.OK).stdout)
	}
}

func TestDecodeReadsItsOwnJSON(t *testing.T) {
	text := ringmsgr(t, "decode", recordings+"msgr2.pcap").want(t, cli.OK).stdout
	lines := ringmsgr(t, "decode", "--json", recordings+"msgr2.pcap").want(t, cli.OK).stdout
	if again := ringmsgrWith(t, lines, "decode", "-").want(t, cli.OK).stdout; again != text {
		t.Errorf("got\n%s\nwant\n%s", again, text)
	}
}

func readRecording(t testing.TB, file string) []byte {
	t.Helper()
	p, err := os.ReadFile(recordings + file)
	clitest.Must(t, err)
	return p
}

// packets are the head of a recording and its packets, each with its own head.
func packets(t testing.TB, file string) (head []byte, list [][]byte) {
	t.Helper()
	p := readRecording(t, file)
	head, p = p[:24], p[24:]
	for len(p) > 0 {
		n := 16 + binary.LittleEndian.Uint32(p[8:])
		list, p = append(list, p[:n]), p[n:]
	}
	return head, list
}

// Matrix: OB-10
func TestDecodeSaysWhatIsWrong(t *testing.T) {
	type recording = [][]byte
	// damaged changes a byte of the second packet of at least size bytes. A negative at is from its end.
	damaged := func(size, at int) func(recording) recording {
		return func(list recording) recording {
			p := slices.DeleteFunc(slices.Clone(list), func(p []byte) bool { return len(p) < size })[1]
			p[(at+len(p))%len(p)] ^= 1
			return list
		}
	}
	for _, c := range []struct {
		file, what string
		change     func(list recording) recording
		says       string
	}{
		{"msgr2.pcap", "a byte of a message is damaged", damaged(300, -40),
			"! acceptor: MESSAGE: bad frame: segment crc does not match"},
		{"msgr2.pcap", "a byte of a preamble is damaged", damaged(300, 16+14+20+32+3), "preamble crc does not match"},
		{"msgr2.pcap", "the recording ends early", func(l recording) recording { return l[:len(l)-8] },
			"end: open where the recording ends"},
		{"msgr2.pcap", "the recording ends in the handshake", func(l recording) recording { return l[:12] },
			"it ended before a session was open"},
		{"msgr2.pcap", "the recording begins late", func(l recording) recording { return l[20:] },
			"it had begun before the recording"},
		{"msgr2.pcap", "AUTH_DONE is missing: all else has its time", func(l recording) recording { return slices.Delete(l, 12, 13) },
			"1 0.002785 > MESSAGE seq 1"},
		{"msgr2.pcap", "both banners are missing", func(l recording) recording { return slices.Concat(l[:3], l[4:5], l[6:]) },
			"> MESSAGE seq 1"},
		{"msgr2.pcap", "a banner was cut", func(l recording) recording {
			binary.LittleEndian.PutUint32(l[3][8:], uint32(len(l[3])-16-22))
			return slices.Concat(l[:3], recording{l[3][:len(l[3])-22]}, l[4:])
		}, "> MESSAGE seq 1"},
		{"msgr1.pcap", "a byte of a message is damaged", damaged(260, -30), "MSG: "},
	} {
		head, list := packets(t, c.file)
		file := string(bytes.Join(append([][]byte{head}, c.change(list)...), nil))
		if got := ringmsgrWith(t, file, "decode", "-").want(t, cli.OK).stdout; !strings.Contains(got, c.says) {
			t.Errorf("%s: nothing says %q in\n%s", c.what, c.says, got)
		}
	}
}

// Without any one packet the rest is decoded: a gap is found, said, and read over.
func TestDecodeReadsOnBehindAGap(t *testing.T) {
	for _, file := range []string{"msgr2.pcap", "msgr1.pcap", "secure.pcap"} {
		head, list := packets(t, file)
		whole := strings.Count(ringmsgr(t, "decode", recordings+file).want(t, cli.OK).stdout, "\n")
		for i := range list {
			rest := bytes.Join(slices.Concat([][]byte{head}, list[:i], list[i+1:]), nil)
			got := ringmsgrWith(t, string(rest), "decode", "-").want(t, cli.OK).stdout
			if n := strings.Count(got, "\n"); n > whole+8 {
				t.Errorf("%s without packet %d: %d lines, with it %d:\n%s", file, i, n, whole, got)
			}
		}
	}
}

// The session of msgr1 is lossless, so that it has acks, too.
// Matrix: V1-12
func TestATraceIsDecodedLikeARecording(t *testing.T) {
	for proto, c := range map[string]struct {
		serve, client string
		says          []string
	}{
		"v2": {"", "ping --count 3", []string{
			"> BANNER", "< HELLO entity_type mon", "= open: ", "> KEEPALIVE2 ", "< KEEPALIVE2_ACK",
		}},
		"v1": {
			"--name osd.3 --policy stateful-server",
			"send --peer osd --policy lossless-client --messages 5 --size 1234",
			[]string{
				"> BANNER msgr1", "< BANNER msgr1", "> CONNECT", "< REPLY", "= open: lossless session",
				"> MSG", "< MSG", "data 1234", "ACK",
			},
		},
	} {
		dir := t.TempDir()
		server, client := filepath.Join(dir, "server"), filepath.Join(dir, "client")
		args := strings.Fields("--json --listen 127.0.0.1:0 --proto " + proto + " --trace " + server + " " + c.serve)
		s := serve(t, args...)
		var l listening
		clitest.Must(t, json.Unmarshal([]byte(s.ready), &l))
		args = append(strings.Fields(c.client), "--trace", client, l.Listening.Front().String())
		ringmsgr(t, args...).want(t, cli.OK)
		s.stop(t)
		for _, file := range []string{server, client} {
			got := ringmsgr(t, "decode", file).want(t, cli.OK).stdout
			for _, says := range append(c.says, "= end: ", "; 0 things are wrong") {
				if !strings.Contains(got, says) {
					t.Errorf("%s: nothing says %q in\n%s", proto, says, got)
				}
			}
		}
	}
}

func TestKeysAreLoggedToAFileOfOurOwn(t *testing.T) {
	keyring := keysOf(t, clientKey)
	file := filepath.Join(t.TempDir(), "keys")
	s := serve(t, "--auth", "cephx", "--keyring", keyring)
	for range 2 {
		r := ringmsgr(t, "ping", "--auth", "cephx", "--keyring", keyring, "--mode", "secure", "--count", "1",
			"--keylog", file, s.addr).want(t, cli.OK)
		if !strings.Contains(r.stderr, "level=WARN") || !strings.Contains(r.stderr, "can read what was recorded") {
			t.Errorf("no warning in %q", r.stderr)
		}
	}
	p, err := os.ReadFile(file)
	if err != nil || bytes.Count(p, []byte("MSGR2_SECRET ")) != 2 {
		t.Errorf("%q, %v", p, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestDecodeRefusesWhatItCannotRead(t *testing.T) {
	missing := ringmsgr(t, "decode", "/nonexistent/x").want(t, cli.Failed)
	if !strings.Contains(missing.stderr, "/nonexistent/x: no such file or directory") {
		t.Error(missing.stderr)
	}
	head, list := packets(t, "msgr2.pcap")
	whole := string(readRecording(t, "msgr2.pcap"))
	lines := ringmsgr(t, "decode", "--json", recordings+"msgr2.pcap").want(t, cli.OK).stdout
	large := strings.Replace(lines, `"payload":["`, `"payload":["`+strings.Repeat("00", maxOther), 1) // of --cut 2MiB
	ringmsgrWith(t, large, "decode", "--brief", "-").want(t, cli.OK)
	for _, c := range []struct{ stdin, says, prints string }{
		{"nonsense", "line 1 is no record of a trace", ""},
		{"{}\n", "line 1 is no record", ""},
		{strings.Repeat("x", maxOther+1), "more than 1048576 bytes", ""},
		{"\xd4\xc3\xb2\xa1", "no recording of network traffic", ""},
		{"", "it is empty", ""},
		{string(head), "the recording has no TCP packets", ""},
		{string(head) + string(list[0]), "nothing in it is msgr2 or msgr1", ""},
		{whole[:len(whole)-1], "the recording ends within a packet", "= end: "},
		{lines[:len(lines)-5], "the trace ends within a record", "= open: "},
		{lines + "?\n" + lines, " is no record of a trace", "= end: "},
	} {
		r := ringmsgrWith(t, c.stdin, "decode", "-").want(t, cli.Failed)
		if !strings.Contains(r.stderr, c.says) || c.prints == "" && r.stdout != "" ||
			!strings.Contains(r.stdout, c.prints) {
			t.Errorf("%q after %q, want %q", r.stderr, r.stdout, c.says)
		}
	}
}

// records are the records of a recording, as far as it can be read.
func records(p []byte, keys *trace.Keys) (all []trace.Record) {
	j := traffic.NewJudge()
	opt := trace.StreamOptions{Keys: keys, Cut: 16, Emit: func(r trace.Record) { all = append(append(all, r), j.Look(&r)...) }}
	_, _ = traffic.Read(bytes.NewReader(p), opt)
	return all
}

// Any recording is decoded to its end, with memory in proportion to it, and its records are
// valid in a trace.
func FuzzRecording(f *testing.F) {
	for _, file := range []string{"msgr2.pcap", "msgr1.pcap", "secure.pcap"} {
		f.Add(readRecording(f, file))
	}
	keys, err := trace.ReadKeys(bytes.NewReader(readRecording(f, "secure.keys")))
	clitest.Must(f, err)
	f.Fuzz(func(t *testing.T, p []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		all := records(p, keys)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20+2000*uint64(len(p)) {
			t.Errorf("%d bytes of memory for a recording of %d", took, len(p))
		}
		for _, r := range all {
			line, err := json.Marshal(&r)
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			var back trace.Record
			if err := json.Unmarshal(line, &back); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	})
}

// A trace without end is read until its output is not taken, or the user interrupts, also while nothing comes.
func TestDecodeEndsWithItsReaderAndItsContext(t *testing.T) {
	lines := ringmsgr(t, "decode", "--json", recordings+"msgr2.pcap").want(t, cli.OK).stdout
	over, cancel := context.WithCancel(t.Context())
	cancel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	clitest.Must(t, syscall.Mkfifo(pipe, 0o600))
	defer func() { // its reader goes on, and ends
		f, err := os.OpenFile(pipe, os.O_RDWR, 0)
		clitest.Must(t, errors.Join(err, f.Close()))
	}()
	for name, c := range map[string]struct {
		ctx    context.Context
		stdin  string // again and again
		stdout io.Writer
		want   int
		args   string
	}{
		"reader":  {t.Context(), lines, clitest.Full{}, cli.Failed, "-"},
		"context": {over, lines, io.Discard, cli.OK, "-"},
		"silence": {over, "", io.Discard, cli.OK, "-"},
		"pipe":    {over, "", io.Discard, cli.OK, pipe}, // that nobody has opened to write
		"keys":    {over, "", io.Discard, cli.Failed, "- --keys " + pipe},
	} {
		in, out := io.Pipe()
		go func() {
			for err := error(nil); err == nil && c.stdin != ""; {
				_, err = io.WriteString(out, c.stdin)
			}
		}()
		late := time.AfterFunc(time.Minute, func() { _ = out.CloseWithError(errors.New("it goes on")) })
		if s := run(c.ctx, env{in, c.stdout, io.Discard, nil}, strings.Fields("decode "+c.args)); s != c.want || !late.Stop() {
			t.Errorf("%s: status %d, want %d", name, s, c.want)
		}
		clitest.Must(t, in.Close())
	}
}
