package stats

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// String is the snapshot as aligned tables: the messenger, its steering, and a
// row for each core. They are for people: the columns may change.
func (st Stats) String() string { return st.text("") }

// String is the text of Messenger.Stats, and a row for each connection.
func (s *Snapshot) String() string {
	var b strings.Builder
	b.WriteString(s.Messenger.text(fmt.Sprintf("%d at %s", s.PID, s.Time.Format(time.RFC3339))))
	b.WriteString("\n")
	t := newTable(&b, tabwriter.AlignRight)
	t.row("conn", "peer", "state", "policy", "protocol", "mode", "core", "msgs in", "msgs out", "bytes in", "bytes out",
		"in seq", "out seq", "queued", "sent", "held bytes", "ack lag", "throttled", "error")
	for i := range s.Conns {
		c := &s.Conns[i]
		io := &c.IO
		t.row(c.ID, c.Peer, c.State, c.Policy, cmp.Or(c.Protocol, "-"), cmp.Or(c.Mode, "-"), c.Placement.short(), io.MessagesIn, io.MessagesOut,
			io.BytesIn, io.BytesOut, io.InSeq, io.OutSeq, io.Queued, io.Sent, c.HeldBytes, io.AckLag, yes(io.Throttled), cmp.Or(c.Error, "-"))
	}
	t.flush()
	return b.String()
}

// text is String, with a line for the process if there is one.
func (st *Stats) text(process string) string {
	var b strings.Builder
	head := newTable(&b, 0)
	head.row("messenger", st.Name)
	if process != "" {
		head.row("process", process)
	}
	head.row("addresses", st.Addrs)
	head.row("backend", withReason(st.Backend, st.Fallback))
	head.row("steering", steeringLine(&st.Steering))
	n := &st.Counters
	head.row("connections", fmt.Sprintf("%d open, %d half open, %d made, %d closed", st.Open, st.HalfOpen, n.Conns, n.Closed))
	if st.Unanswered > 0 {
		head.row("unanswered", fmt.Sprintf("%d dial without an answer, the first for %v", st.Unanswered, time.Duration(st.UnansweredSeconds)*time.Second))
	}
	head.row("accepted", fmt.Sprintf("%d, %d failed, %d refused", n.Accepted, n.AcceptFailures, n.Refused))
	f, d, p, h := &n.Failures, &n.Door, &n.Placement, &n.Hints
	head.row("failed", fmt.Sprintf("%d banner, %d timeout, %d wrong peer, %d stale, %d auth, %d limits, %d evicted, %d other",
		f.Banner, f.Timeout, f.WrongPeer, f.Stale, f.Auth, f.Limits, f.Evicted, f.Other))
	head.row("half open", fmt.Sprintf("refused %d over all, %d for their source, %d for their prefix, %d for failures before; "+
		"%d waited, %d for a place and %d in vain, %d evicted", d.OverAll, d.Source, d.Prefix, d.Rate, d.Waited, d.Lined, d.Late, d.Evicted))
	head.row("placed", fmt.Sprintf("%d as intended, elsewhere: %d unsteered, %d no hint, %d another hint, %d missed",
		p.Intended, p.Unsteered, p.NoHint, p.OtherHint, p.Missed))
	head.row("hints", fmt.Sprintf("%d given, %d dialled (%d ports busy, %d dials found none), %d refused, %d translated, %d confirmed, %d contradicted",
		h.Given, h.Dialled, h.Busy, h.Gone, h.Refused, h.Translated, h.Confirmed, h.Contradicted))
	head.row("in flight", fmt.Sprintf("%d bytes%s, %d connections wait", st.InFlight, of(st.InFlightLimit), st.Waiting))
	head.row("sending", fmt.Sprintf("%d bytes%s", st.Sending, of(st.SendingLimit)))
	head.flush()

	for _, g := range st.Steering.Groups {
		fmt.Fprintf(&b, "\nsteering of %s\n%v", g.Addr, g.Counters)
	}

	b.WriteString("\n")
	work := newTable(&b, tabwriter.AlignRight)
	work.row("core", "state", "conns", "sockets", "accepts", "msgs in", "msgs out", "bytes in", "bytes out", "moved here", "moved away", "stalls")
	for i := range st.Cores {
		c := &st.Cores[i]
		work.row(c.Core, coreState(c), c.Load, c.Sockets, c.Accepts, c.MessagesIn, c.MessagesOut, c.BytesIn, c.BytesOut, c.MovedHere, c.MovedAway, c.Stalls)
	}
	work.flush()

	b.WriteString("\n")
	late := newTable(&b, tabwriter.AlignRight)
	late.row("latency", "samples", "mean", "p50", "p99", "p99.9")
	all := st.Latency()
	for _, one := range []struct {
		what string
		h    *dataplane.Histogram
	}{{"queue", &all.Queue}, {"dispatch", &all.Dispatch}, {"ack", &all.Ack}} {
		n := one.h.Count()
		mean := one.h.Sum / time.Duration(max(n, 1))
		late.row(one.what, n, brief(mean), brief(one.h.Quantile(0.5)), brief(one.h.Quantile(0.99)), brief(one.h.Quantile(0.999)))
	}
	late.flush()

	b.WriteString("\n")
	loop := newTable(&b, tabwriter.AlignRight)
	loop.row("core", "turns", "syscalls", "in flight", "overflows", "rearms", "by buffers", "no buffers", "paused", "cpu")
	for i := range st.Cores {
		c := &st.Cores[i]
		loop.row(c.Core, c.Turns, c.Driver.Syscalls, c.Driver.InFlight, c.Driver.Overflows, c.Rearms, c.Receiving, c.Driver.NoBuffers, c.Paused, seconds(c.CPU))
	}
	loop.flush()
	return b.String()
}

// steeringLine is the steering in a few words.
func steeringLine(s *steering.Stats) string {
	if !s.Active {
		text := withReason(string(s.Mode)+", not active", s.Why)
		if s.Missing != "" {
			text += "; missing " + s.Missing
		}
		if s.Remedy != "" {
			text += "; " + s.Remedy
		}
		return text
	}
	text := string(s.Mode) + ": " + strings.Join(s.Rules, ", ")
	if s.HintPorts != "" {
		text += "; hint ports " + s.HintPorts
	}
	if !s.Migration {
		text += "; no migration"
	}
	return text
}

// String is the snapshot as aligned lines.
func (st ConnStats) String() string {
	var b strings.Builder
	t := newTable(&b, 0)
	t.row("connection", fmt.Sprintf("%d to %s %s", st.ID, st.PeerType, st.Peer))
	t.row("state", withReason(st.State, st.Error))
	t.row("policy", withReason(st.Policy, map[bool]string{true: "lossy"}[st.Lossy]))
	empty := func(s string) bool { return s == "" }
	if !empty(st.Protocol) {
		t.row("protocol", strings.Join(slices.DeleteFunc([]string{st.Protocol, st.Auth, st.Mode, st.Compression}, empty), ", "))
	}
	t.row("core", st.Placement.line())
	n := &st.Counters
	t.row("attempts", fmt.Sprintf("%d, %d from a hinted port, %d ready, %d faults, %d replaced", n.Attempts, n.Hinted, n.Ready, n.Faults, n.Replaced))
	t.row("session", fmt.Sprintf("connect_seq %d, global_seq %d, %d resets, %d remote resets", st.ConnectSeq, st.GlobalSeq, n.Resets, n.RemoteResets))
	io := &st.IO
	t.row("sequences", fmt.Sprintf("in %d, out %d, %d to acknowledge", io.InSeq, io.OutSeq, io.AckLag))
	t.row("queues", fmt.Sprintf("%d to send, %d sent and not acknowledged, %d bytes%s", io.Queued, io.Sent, st.HeldBytes, st.flags()))
	for _, th := range st.Throttles {
		t.row("throttle", fmt.Sprintf("%d %s%s, %d connections wait", th.Used, th.unit(), of(th.Limit), th.Waiting))
	}
	t.row("messages", fmt.Sprintf("%d in, %d out, %d requeued, %d duplicates, %d gaps", io.MessagesIn, io.MessagesOut, io.Requeued, io.Duplicates, io.Gaps))
	t.row("bytes", fmt.Sprintf("%d in, %d out; the last came %v ago", io.BytesIn, io.BytesOut, io.Quiet.Round(time.Millisecond)))
	t.row("receiving", fmt.Sprintf("%d bytes of an unfinished frame, %d bytes of the receive budget held", io.Unfinished, io.Reserved))
	if io.Receive != "" {
		t.row("reading", withReason(string(io.Receive), string(io.ReceiveWhy)))
	}
	t.flush()
	return b.String()
}

func (p Placement) line() string {
	if p.Core == p.Intended {
		return fmt.Sprintf("%d as intended, by %s", p.Core, p.By)
	}
	return withReason(fmt.Sprintf("%d, intended %d by %s", p.Core, p.Intended, p.By), p.Reason)
}

// short is the core, with the one that was meant if that is another.
func (p Placement) short() string {
	if p.Core == p.Intended {
		return fmt.Sprint(p.Core)
	}
	return fmt.Sprintf("%d not %d", p.Core, p.Intended)
}

func (t ThrottleStats) unit() string {
	if t.Of == "dispatch" {
		return "bytes of all connections"
	}
	return t.Of
}

// of is a limit, if there is one.
func of(limit int64) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", limit)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func (st *ConnStats) flags() string {
	text, io := "", &st.IO
	if io.Writing {
		text += ", writing"
	}
	switch {
	case st.ThrottledFor > 0:
		text += fmt.Sprintf(", throttled for %v", st.ThrottledFor.Round(time.Second))
	case io.Throttled:
		text += ", throttled"
	}
	if io.QueueFull > 0 {
		text += fmt.Sprintf(", found full %d times", io.QueueFull)
	}
	return text
}

func coreState(c *dataplane.CoreStats) string {
	switch {
	case c.Failed != "":
		return "failed"
	case c.Stalled:
		return "stalled"
	case c.State == loop.CoreDraining.String():
		return "draining"
	}
	return "ok"
}

// brief rounds a latency to three digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// seconds rounds a duration for a column.
func seconds(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + " (" + reason + ")"
}

// textTable aligns columns.
type textTable struct {
	w   *tabwriter.Writer
	end string // of a row: columns are aligned to the right up to a tab
}

func newTable(w io.Writer, flags uint) textTable {
	t := textTable{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', flags), end: "\n"}
	if flags&tabwriter.AlignRight != 0 {
		t.end = "\t\n"
	}
	return t
}

func (t textTable) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, c)
	}
	fmt.Fprint(t.w, t.end)
}

// flush writes the table out, into memory: it cannot fail.
func (t textTable) flush() { _ = t.w.Flush() }
