package interop_test

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// A complaint is an error, or a line of a messenger or of an authenticator with one of
	// these words, at any level.
	isError   = regexp.MustCompile(`^\S+ \S+ +-1 `)
	isSession = regexp.MustCompile(` (--|--1-|--2-|auth:|cephx:|cephx \w+:) `)
	isWrong   = regexp.MustCompile(`(?i)\bbad\b|fail|mismatch|unexpected|malformed|unable|wrong|invalid|unsupported|abort|corrupt|refus|reject|denied|missing|truncated|exception|\bnot (us|me|match|valid|allowed|support)|is trying to reach`)
	// Lines about the end of a connection: a client ends its connections, and may come
	// again before the daemon has noticed.
	isEnd = regexp.MustCompile(`process reconnect failed to |read_until read failed|read peer banner (payload |and addr )?failed|read (ack|banner|connect|keeplive|message) [a-z ]+ failed|write [a-z ]+ (banner|reply) failed|write [\w ]+ write failed r=-(32|104) |read frame [a-z ]+ failed r=-1\s|send [a-z ]+ failed|failed to send in_seq|fault on lossy channel, failing|replacing on lossy channel, failing existing|send_message inline write is denied, reschedule|handle_message read tag failed|handle_message_footer aborted = 0`)
	// Lines that are not about our peers: two messengers of one process have one name, keys are of
	// the type that the cluster was made with, and a daemon that starts has no commands yet for those who wait for it; a busy
	// one writes that late.
	isHarmless = regexp.MustCompile(`failed due to a name collision|\(AUTH_INSECURE_\w+\)|AdminSocket: request .* not defined`)
)

// suspicious are parts of all lines that isError and isWrong match: the logs are
// long, and searching them for all of it takes far longer.
var suspicious = []string{
	" -1 ", "bad", "fail", "mismatch", "unexpected", "malformed", "unable", "wrong", "invalid", "unsupported", "abort",
	"corrupt", "refus", "reject", "denied", "missing", "truncated", "exception", "not ", "trying",
}

// complaints are the lines of a log that say that something is wrong.
func complaints(log string) []string {
	var found []string
	for line := range strings.Lines(log) {
		lower := strings.ToLower(line)
		if !slices.ContainsFunc(suspicious, func(part string) bool { return strings.Contains(lower, part) }) {
			continue
		}
		if isHarmless.MatchString(line) {
			continue
		}
		if isError.MatchString(line) || isSession.MatchString(line) && isWrong.MatchString(line) && !isEnd.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

// logReader reads the log of a daemon that goes on writing.
type logReader struct {
	file    *os.File
	partial string // the last line, of which the end is not there yet
}

// openLog reads the daemon's log from its beginning.
func openLog(t *testing.T, d *daemon) *logReader {
	t.Helper()
	f, err := os.Open(d.logFile())
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return &logReader{file: f}
}

// lines are the whole lines that were written since the last call.
func (l *logReader) lines(t *testing.T) string {
	t.Helper()
	b, err := io.ReadAll(l.file)
	check(t, err)
	text := l.partial + string(b)
	end := strings.LastIndexByte(text, '\n') + 1
	l.partial = text[end:]
	return text[:end]
}

// logs reads what the daemons write from now on.
type logs map[string]*logReader

func (c *cluster) watchLogs(t *testing.T) logs {
	t.Helper()
	l := make(logs)
	for _, d := range c.daemons() {
		l[d.name] = openLog(t, d)
		l[d.name].lines(t)
	}
	return l
}

// sessions keeps the complaints that are about sessions.
func sessions(complaints []string) []string {
	return slices.DeleteFunc(complaints, func(c string) bool { return !isSession.MatchString(c) })
}

// complaints are those that were written since the last call.
func (l logs) complaints(t *testing.T) []string {
	t.Helper()
	var found []string
	for name, log := range l {
		for _, line := range complaints(log.lines(t)) {
			found = append(found, name+": "+line)
		}
	}
	return found
}

// quiet checks when the test ends that no daemon's log has complained since. It
// must be called first, so that our messengers are down by then.
func quiet(t *testing.T, c *cluster) {
	t.Helper()
	l := c.watchLogs(t)
	t.Cleanup(func() { wantNone(t, l.complaints(t)) })
}

func wantNone(t *testing.T, complaints []string) {
	t.Helper()
	if len(complaints) > 0 {
		t.Errorf("a log complains:\n%s", strings.Join(complaints, ""))
	}
}

func TestComplaintsAreToldFromEnds(t *testing.T) {
	const at = "2026-11-24T02:37:00.767+0000 7ff3125886c0 "
	for line, want := range map[string]bool{
		" 1 --2- v2:127.0.0.1:1/0 >> conn(0x5 crc :-1 s=READY).handle_read_frame_preamble_main read frame preamble failed r=-1":                     false,
		" 1 --2- v2:127.0.0.1:1/0 >> conn(0x5 crc :-1 s=READY).handle_read_frame_preamble_main read frame preamble failed r=-1 ((1) not permitted)": false,
		" 1 --2- v2:127.0.0.1:1/0 >> conn(0x5 crc :-1 s=READY).handle_read_frame_preamble_main read frame preamble failed r=-100":                   true,
		" 1 --1- [v2:127.0.0.1:1/0] >> conn(0x5 :1 s=ACCEPTING_WAIT_CONNECT_MSG_AUTH).replace replacing on lossy channel, failing existing":         false,
		"10 --  operator() registering messenger mon-mgrc using key mon-mgrc failed due to a name collision. messenger won't be available":          false,
		"-1 log_channel(cluster) log [ERR] : Health check update: 3 entities with insecure key types (AUTH_INSECURE_SERVICE_KEY_TYPE)":              false,
		"-1 asok(0x5) AdminSocket: request '[{\"prefix\":\"mon_status\"}]' not defined":                                                             false,
		" 1 --1- v1:127.0.0.1:1/0 >> v1:127.0.0.1:2/0 conn(0x5 :-1 s=CONNECTING_SEND_CONNECT_MSG).handle_connect_reply_1 read connect reply failed": false,
		" 1 --1- [v2:127.0.0.1:1/0] >>  conn(0x5 :1 s=ACCEPTING). write server banner failed":                                                       false,
		"10 --1- v2:127.0.0.1:1/0 >> v1:127.0.0.1:2/0 conn(0x5 :-1 s=CONNECTING_SEND_CONNECT_MSG).handle_in_seq_write failed to send in_seq ":       false,
		" 1 --1- v2:127.0.0.1:1/0 >> v1:127.0.0.1:2/0 conn(0x5 :-1 s=READ_MESSAGE_HEADER).handle_message_header read message header failed":         false,
		"-1 log_channel(cluster) log [ERR] : Health check failed: no active mgr":                                                                    true,
		" 0 --2- v2:127.0.0.1:1/0 >> conn(0x5 crc :-1 s=READY).handle_read_frame_preamble_main bad preamble crc":                                    true,
		" 5 -- v2:127.0.0.1:1/0 >> a message without a word of that kind":                                                                           false,
	} {
		if found := complaints(at + line + "\n"); (len(found) == 1) != want {
			t.Errorf("%q: a complaint is %v, want %v", line, !want, want)
		}
	}
}
