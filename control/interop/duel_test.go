package interop_test

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// idleLimit is after how many seconds without a sign of us the daemon gives
// a connection up.
const idleLimit = "2"

// duel is a lossless session between a fellow and a real daemon.
type duel struct {
	top     *testing.T // for what lives as long as the session
	t       *testing.T // of what is happening now
	c       *cluster
	daemon  *daemon
	cfg     fellowConfig
	there   *proxy // every byte of connections that we make passes through it
	back    *proxy // and of those that the daemon makes
	log     *logReader
	said    strings.Builder // of the log, since the last mark
	seq     int             // of the last message that the daemon has from us
	replied int             // how many answers it has queued
	fresh   bool            // the next one may be the first of a new session

	f      *fellow
	before fellowReport // at the last mark
}

// newDuel has us be the seventh of the daemon's kind.
func newDuel(t *testing.T, c *cluster, d *daemon, policy control.Policy, peer wire.Addr, backend uring.Backend) *duel {
	t.Helper()
	free := freePorts(3)
	kind, _, _ := strings.Cut(d.name, ".")
	x := &duel{top: t, t: t, c: c, daemon: d}
	x.cfg = fellowConfig{
		Name: kind + ".7", Number: 7, Nonce: 7000, Policy: policy, Backend: backend,
		Public: free[0], Behind: free[1], Via: free[2], Peer: peer, FSID: c.fsid,
	}
	if c.auth == "cephx" {
		x.cfg.Auth.Client, x.cfg.Auth.Server = monKeys(t, c)
	}
	x.there = startProxy(t, free[2].String(), peer.AddrPort.String())
	x.back = startProxy(t, free[0].String(), free[1].String())
	x.log = openLog(t, d)
	x.start()
	return x
}

// monKeys are both sides of cephx for one more monitor of a cluster: it has the key that
// all monitors share.
func monKeys(t *testing.T, c *cluster) (auth.Client, auth.Server) {
	t.Helper()
	self := wire.EntityName{Type: wire.Mon}
	client, err := cephx.NewClient(cephx.ClientConfig{Name: self, Key: clusterKey(t, c, self)})
	check(t, err)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: c.ring(t)})
	check(t, err)
	server, err := cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority})
	check(t, err)
	return client, server
}

// start starts our messenger.
func (x *duel) start() {
	x.t.Helper()
	f := startFellow(x.t, x.cfg)
	x.f, x.fresh = f, true
	x.top.Cleanup(func() {
		if x.f == f {
			x.kill()
		}
	})
}

// kill ends our messenger without a word to the daemon.
func (x *duel) kill() {
	x.f.conn.MarkDown()
	shutdown(x.top, x.f.m)
	x.f = nil
}

// frozen has our cores stand still meanwhile.
func (x *duel) frozen(meanwhile func()) {
	x.t.Helper()
	<-x.f.gate
	defer func() {
		x.f.gate <- struct{}{}
		x.report()
	}()
	meanwhile()
}

// send queues requests that cost the daemon little.
func (x *duel) send(n int) {
	x.t.Helper()
	prefix := "version"
	if x.f.peerType() == wire.Mon {
		prefix = "fsid"
	}
	for range n {
		x.f.ask(x.t, map[string]string{"prefix": prefix, "format": "json"}, nil, nil)
	}
}

// report waits for our cores, to which a busy machine may give no time for seconds.
func (x *duel) report() fellowReport {
	x.t.Helper()
	var r fellowReport
	var err error
	x.poll("our cores", func() bool { r, err = x.f.report(); return !errors.Is(err, loop.ErrStalled) }, func() string { return err.Error() })
	check(x.t, err)
	if r.Wrong != "" {
		x.t.Fatalf("not exactly once and in order: %s", r.Wrong)
	}
	return r
}

// mark is where the next look at the log and at the counters begins.
func (x *duel) mark() {
	x.t.Helper()
	x.read()
	x.said.Reset()
	x.before = x.report()
}

// us is our address in the form of the daemon's log.
func (x *duel) us() string { return fmt.Sprintf("%v/%d", x.cfg.Public, x.cfg.Nonce) }

// storyWords tell lines about sessions from those about bytes.
var storyWords = []string{
	"fault", "reconnect", "ident", "standby", "reset", "existing", "reuse", " idle (", "handle_wait", "<==",
	"RESETSESSION", "connect success", "accept success",
}

// stories are expressions for what logs tell in the words of a protocol.
var stories = map[wire.AddrType]map[string]string{
	wire.AddrMsgr2: {
		"a new session":       `(?s)handle_client_ident received client identification.*send_server_ident`,
		"no new session":      `reset_session|send_server_ident|reseting client|session reset`,
		"the session goes on": `send_reconnect_ok|reconnect success`,
		"we come back":        `(?s)handle_reconnect.*send_reconnect_ok`,
		// A slow daemon has no answer to send yet: it stands by until it has an answer.
		"the daemon comes back":    `(?s)(initiating reconnect|going to standby).*send_reconnect.*reconnect success`,
		"we are another":           `reset_session|received session reset full=1`,
		"it knows no session":      `no existing connection exists, reseting client`,
		"it finds our predecessor": `found previous session`,
	},
	wire.AddrLegacy: {
		"a new session":            `accept success, connect_seq = 1 in_seq=0`,
		"no new session":           `connect_seq = 1 in_seq|connect success 1,|RESETSESSION|peer reset`,
		"the session goes on":      `(accept success, connect_seq =|connect success) ([2-9]|\d\d)`,
		"we come back":             `accept success, connect_seq = ([2-9]|\d\d)`,
		"the daemon comes back":    `(?s)(initiating reconnect|going to standby).*connect success ([2-9]|\d\d)`,
		"we are another":           `accept peer reset, then tried to connect to us|connect got RESETSESSION`,
		"it knows no session":      `accept we reset \(peer sent cseq \d+\), sending RESETSESSION`,
		"it finds our predecessor": `accept existing`,
	},
}

// story is an expression for what a log tells: in its own words, or in those of stories.
func (x *duel) story(told string) *regexp.Regexp {
	return regexp.MustCompile(cmp.Or(stories[x.cfg.Peer.Type][told], told))
}

// read adds new lines of the log about our session to said.
func (x *duel) read() {
	x.t.Helper()
	for line := range strings.Lines(x.log.lines(x.t)) {
		told := func(word string) bool { return strings.Contains(line, word) }
		if isReply.MatchString(line) && told(x.us()) {
			x.replied++
		}
		if told(x.us()) && slices.ContainsFunc(storyWords, told) {
			x.said.WriteString(line)
			x.order(line)
		}
	}
}

// isMessage is a line about a message that was delivered to the daemon, isReply one about an answer of the daemon.
var isMessage = regexp.MustCompile(`<== \w+\.7 \S+ (\d+) ====`)
var isReply = regexp.MustCompile(` --> \S+ -- (mon_command_ack|command_reply)\(`)

// order checks that the daemon gets our messages once each and in order.
func (x *duel) order(line string) {
	x.t.Helper()
	m := isMessage.FindStringSubmatch(line)
	if m == nil {
		return
	}
	n, err := strconv.Atoi(m[1])
	check(x.t, err)
	first := n == 1 || x.cfg.Peer.Type == wire.AddrLegacy // a session of msgr1 that was reset begins at a random number
	if n != x.seq+1 && (!first || !x.fresh) {
		x.t.Fatalf("message %d, after %d: %s", n, x.seq, line)
	}
	x.seq, x.fresh = n, false
}

// links are the ways in both directions.
func (x *duel) links() []*proxy { return []*proxy{x.there, x.back} }

// cut resets the link.
func (x *duel) cut() {
	for _, l := range x.links() {
		l.cut()
	}
}

// hole makes the link a black hole, or no longer.
func (x *duel) hole(on bool) {
	for _, l := range x.links() {
		l.blackHole(on)
	}
}

// lose drops what is on its way from us, or from the daemon, and will be, on the present connections.
func (x *duel) lose(ours bool) {
	there, back := toClient, toServer
	if ours {
		there, back = back, there
	}
	x.there.swallow(there)
	x.back.swallow(back)
}

// deliver queues n requests, and waits until the daemon has queued the answers: a monitor drops a request whose connection ends before.
func (x *duel) deliver(n int, queue func()) {
	x.t.Helper()
	x.read()
	due := x.replied + n
	queue()
	x.poll("the requests", func() bool { x.read(); return x.replied >= due }, x.said.String)
}

// unanswered sends requests that the daemon gets, and whose answers are lost.
func (x *duel) unanswered(n int) {
	x.t.Helper()
	for {
		x.lose(false)
		before := x.report()
		x.deliver(n, func() { x.send(n) })
		if r := x.report(); r.Answers == before.Answers {
			return
		}
		x.answered() // by another connection: the daemon took so long that we gave the first up
	}
}

// ask sends a request with data. The answer has the data want; nil: any.
func (x *duel) ask(prefix, key string, data, want []byte) {
	x.t.Helper()
	x.f.ask(x.t, map[string]string{"prefix": prefix, "key": key}, data, want)
}

// until asks our messenger again and again until ok.
func (x *duel) until(what string, ok func(r *fellowReport) bool) fellowReport {
	x.t.Helper()
	var r fellowReport
	x.poll(what, func() bool { r = x.report(); return ok(&r) }, func() string { return fmt.Sprintf("%+v", r) })
	return r
}

// says waits until the log tells all of that, in this order.
func (x *duel) says(told ...string) {
	x.t.Helper()
	x.poll(fmt.Sprintf("%q in the log", told), func() bool {
		x.read()
		rest := x.said.String()
		for _, p := range told {
			at := x.story(p).FindStringIndex(rest)
			if at == nil {
				return false
			}
			rest = rest[at[1]:]
		}
		return true
	}, x.said.String)
}

// silent checks that the log tells none of that.
func (x *duel) silent(told ...string) {
	x.t.Helper()
	x.read()
	for _, w := range told {
		if x.story(w).MatchString(x.said.String()) {
			x.t.Errorf("the daemon says %q:\n%s", w, x.said.String())
		}
	}
}

func (x *duel) poll(what string, ok func() bool, found func() string) {
	x.t.Helper()
	if !await(patience, ok) {
		x.t.Fatalf("waited in vain for %s; there is\n%s", what, found())
	}
}

// answered waits until all requests have their answers.
func (x *duel) answered() fellowReport {
	x.t.Helper()
	return x.until("all answers", func(r *fellowReport) bool { return r.Answers == r.Sent })
}

// resumed checks that the session goes on, with every answer.
func (x *duel) resumed() {
	x.t.Helper()
	r := x.answered()
	x.says("the session goes on")
	if a, b := r.Counters, x.before.Counters; a.Idents != b.Idents || a.Ready == b.Ready || r.Resets+r.Remote != x.before.Resets+x.before.Remote {
		x.t.Errorf("the session was not resumed: %+v, before %+v", r, x.before)
	}
	x.silent("no new session")
}

// began checks that our new messenger has a new session, with every answer.
func (x *duel) began() {
	x.t.Helper()
	r := x.answered()
	if r.Counters.Ready == 0 || r.Counters.Reconnects != 0 || r.Resets+r.Remote != 0 {
		x.t.Errorf("no plain new session: %+v", r)
	}
}
