package control

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// String is the snapshot as aligned tables: the messenger, its steering, and a
// row for each core.
func (st Stats) String() string {
	var b strings.Builder
	head := newTable(&b, 0)
	head.row("name", st.Name)
	head.row("addresses", st.Addrs)
	head.row("backend", withReason(st.Backend, st.Fallback))
	head.row("steering", st.Steering.line())
	n := &st.Counters
	head.row("connections", fmt.Sprintf("%d open, %d half open, %d made, %d closed", st.Open, st.HalfOpen, n.Conns, n.Closed))
	head.row("accepted", fmt.Sprintf("%d, %d failed, %d refused", n.Accepted, n.AcceptFailures, n.Refused))
	head.row("placed", n.Placement.line())
	head.row("hints", n.Hints.line())
	head.row("in flight", fmt.Sprintf("%d bytes", st.InFlight))
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
	loop := newTable(&b, tabwriter.AlignRight)
	loop.row("core", "turns", "syscalls", "in flight", "overflows", "rearms", "no buffers", "paused", "tasks", "send", "wait", "receive", "dispatch")
	for i := range st.Cores {
		c := &st.Cores[i]
		t := &c.Spent
		loop.row(c.Core, c.Turns, c.Driver.Syscalls, c.Driver.InFlight, c.Driver.Overflows, c.Rearms, c.Driver.NoBuffers, c.Paused,
			seconds(t.Tasks), seconds(t.Send), seconds(t.Wait), seconds(t.Receive), seconds(t.Dispatch))
	}
	loop.flush()
	return b.String()
}

// line is the steering in a few words.
func (s SteeringStats) line() string {
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

func (n PlacementCounters) line() string {
	return fmt.Sprintf("%d as intended, elsewhere: %d unsteered, %d no hint, %d another hint, %d missed",
		n.Intended, n.Unsteered, n.NoHint, n.OtherHint, n.Missed)
}

func (n HintCounters) line() string {
	return fmt.Sprintf("%d given, %d dialled (%d ports busy, %d dials found none), %d refused, %d translated, %d confirmed, %d contradicted",
		n.Given, n.Dialled, n.Busy, n.Gone, n.Refused, n.Translated, n.Confirmed, n.Contradicted)
}

// String is the snapshot as aligned lines.
func (st ConnStats) String() string {
	var b strings.Builder
	t := newTable(&b, 0)
	t.row("connection", fmt.Sprintf("%d to %s %s", st.ID, st.PeerType, st.Peer))
	t.row("state", withReason(st.State, st.Error))
	t.row("policy", st.Policy)
	if st.Protocol != "" {
		t.row("protocol", strings.Join(nonEmpty(st.Protocol, st.Auth, st.Mode, st.Compression), ", "))
	}
	t.row("core", st.Placement.line())
	n := &st.Counters
	t.row("attempts", fmt.Sprintf("%d, %d from a hinted port, %d ready, %d faults, %d replaced", n.Attempts, n.Hinted, n.Ready, n.Faults, n.Replaced))
	t.row("session", fmt.Sprintf("connect_seq %d, global_seq %d, %d resets, %d remote resets", st.ConnectSeq, st.GlobalSeq, n.Resets, n.RemoteResets))
	io := &st.IO
	t.row("sequences", fmt.Sprintf("in %d, out %d, %d to acknowledge", io.InSeq, io.OutSeq, io.AckLag))
	t.row("queues", fmt.Sprintf("%d to send, %d sent and not acknowledged%s", io.Queued, io.Sent, flags(io)))
	t.row("messages", fmt.Sprintf("%d in, %d out, %d requeued, %d duplicates, %d gaps", io.MessagesIn, io.MessagesOut, io.Requeued, io.Duplicates, io.Gaps))
	t.row("bytes", fmt.Sprintf("%d in, %d out", io.BytesIn, io.BytesOut))
	t.flush()
	return b.String()
}

func (p Placement) line() string {
	if p.Core == p.Intended {
		return fmt.Sprintf("%d as intended, by %s", p.Core, p.By)
	}
	return withReason(fmt.Sprintf("%d, intended %d by %s", p.Core, p.Intended, p.By), p.Reason)
}

func flags(io *dataplane.HandlerStats) string {
	text := ""
	if io.Writing {
		text += ", writing"
	}
	if io.Throttled {
		text += ", throttled"
	}
	return text
}

func coreState(c *dataplane.CoreStats) string {
	switch {
	case c.Failed != "":
		return "failed"
	case c.Stalled:
		return "stalled"
	}
	return "ok"
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

func nonEmpty(list ...string) []string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
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
