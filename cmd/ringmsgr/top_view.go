package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// topView draws frames as text.
type topView struct {
	width, height int // of the screen; height 0: as long as it gets
	color         bool
	live          bool
	stopped       bool
	group         bool        // one row for each peer
	first         int         // row of the connections that is shown first
	page          int         // rows of connections that were shown
	history       *topHistory // nil: none
	b             strings.Builder
}

// The colours; names say what they mean.
const (
	styleOff   = "\x1b[0m"
	styleTitle = "\x1b[1m"
	styleHead  = "\x1b[7m"
	styleDim   = "\x1b[2m"
	styleGood  = "\x1b[32m"
	styleWait  = "\x1b[33m"
	styleBad   = "\x1b[31m"
)

func (v *topView) styled(style, text string) string {
	if !v.color || style == "" {
		return text
	}
	return style + text + styleOff
}

// line writes one line, cut to the screen. The style spans it.
func (v *topView) line(style, text string) {
	v.b.WriteString(v.styled(style, cut(text, v.width)))
	v.b.WriteByte('\n')
}

// cut shortens text to n columns.
func cut(text string, n int) string {
	text = strings.TrimRight(text, " ")
	if n <= 0 || utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// phrases joins what is not empty, the most important first, and leaves out
// what does not fit.
func (v *topView) phrases(parts ...string) string {
	text := ""
	for _, p := range parts {
		if p == "" {
			continue
		}
		if text != "" {
			p = "   " + p
		}
		if v.width > 0 && utf8.RuneCountInString(text+p) > v.width {
			break
		}
		text += p
	}
	return text
}

// render draws one frame.
func (v *topView) render(f *topFrame, o topOrder) string {
	v.b.Reset()
	overflows := uint64(0)
	for i := range f.Cores {
		overflows += f.Cores[i].Overflows
	}
	state := ""
	if v.stopped {
		state = "stopped, space continues"
	}
	v.line(styleTitle, v.phrases("ringmsgr top", f.Name, state, f.Backend, fmt.Sprintf("pid %d", f.PID), "steering "+f.Steering, f.Addrs))
	alarm := ""
	if overflows > 0 {
		alarm = fmt.Sprintf("%d ring overflows", overflows)
	}
	trend := ""
	if v.history != nil {
		trend = curve(v.history.total, min(len(v.history.total), 12))
	}
	v.line("", v.phrases(f.Time.Format("15:04:05"), alarm, fmt.Sprintf("in %s/s %s", count(f.Total.In), bandwidth(f.Total.MBIn)),
		fmt.Sprintf("out %s/s %s", count(f.Total.Out), bandwidth(f.Total.MBOut)), fmt.Sprintf("%d open", f.Open),
		fmt.Sprintf("%s held", quantity.Bytes(f.InFlight)), trend, fmt.Sprintf("%d half open, %d made", f.HalfOpen, f.Made)))
	v.line("", "")
	columns := fitColumns(v.coreColumns(), v.width)
	v.line(styleHead, v.pad(tableHead(columns)))
	for i := range f.Cores {
		v.row(tableRow(v, columns, &f.Cores[i]))
	}
	v.line("", "")
	v.conns(f, o)
	return v.b.String()
}

// pad fills a head to the width of the screen, so that its style spans it.
func (v *topView) pad(text string) string {
	if !v.live {
		return text
	}
	return text + strings.Repeat("\u00a0", max(0, v.width-utf8.RuneCountInString(text)))
}

// columns of a core.
func (v *topView) coreColumns() []topColumn[topCore] {
	type core = topCore
	plain := func(f func(c *core) string) func(*core, int) (string, string) {
		return func(c *core, _ int) (string, string) { return f(c), "" }
	}
	columns := []topColumn[core]{
		{head: "CORE", width: 4, rank: 0, cell: plain(func(c *core) string { return fmt.Sprint(c.Core) })},
		{head: " CPU", width: 15, rank: 1, left: true, grows: 22, cell: cpuCell},
		{head: "CONNS", width: 6, rank: 3, cell: plain(func(c *core) string { return fmt.Sprint(c.Conns) })},
		{head: "IN/s", width: 7, rank: 2, cell: plain(func(c *core) string { return count(c.In) })},
		{head: "OUT/s", width: 7, rank: 2, cell: plain(func(c *core) string { return count(c.Out) })},
		{head: "IN", width: 9, rank: 2, cell: plain(func(c *core) string { return bandwidth(c.MBIn) })},
		{head: "OUT", width: 9, rank: 2, cell: plain(func(c *core) string { return bandwidth(c.MBOut) })},
		{head: "CALLS/s", width: 7, rank: 5, cell: plain(func(c *core) string { return count(c.Syscalls) })},
		{head: "WRITES/s", width: 8, rank: 8, cell: plain(func(c *core) string { return count(c.Writes) })},
		// Behind a large message there are several writes.
		{head: "MSG/WR", width: 6, rank: 7, cell: plain(func(c *core) string {
			if c.Writes == 0 {
				return "-"
			}
			return fmt.Sprintf("%.1f", c.Out/c.Writes)
		})},
		{head: "RING", width: 4, rank: 9, cell: plain(func(c *core) string { return fmt.Sprint(c.InFlight) })},
		{head: "BY-BUFS", width: 7, rank: 10, cell: plain(func(c *core) string { return fmt.Sprint(c.ByBuffers) })},
		{head: "STALLS", width: 6, rank: 6, cell: plain(func(c *core) string { return fmt.Sprint(c.Stalls) })},
	}
	if v.history != nil {
		columns = append(columns, topColumn[core]{head: "TREND", width: 10, rank: 4, left: true, grows: 40, cell: func(c *core, width int) (string, string) {
			return curve(v.history.cores[c.Core], width), styleDim
		}})
	}
	return columns
}

// cpuCell is a bar, or what keeps the core from work.
func cpuCell(c *topCore, width int) (string, string) {
	switch {
	case c.State == "failed":
		return " FAILED", styleBad
	case c.State == "draining":
		return " being removed", styleWait
	case c.Stalled:
		return " STALLED", styleBad
	case c.CPU < 0 && c.topRates == (topRates{}):
		return " idle", styleDim
	case c.CPU < 0:
		return " not known", styleDim
	}
	cells := width - 6
	n := min(int(math.Round(c.CPU*float64(cells))), cells)
	bar := fmt.Sprintf(" %s%s %3.0f%%", strings.Repeat("█", n), strings.Repeat("·", cells-n), c.CPU*100)
	if c.CPU >= 0.8 {
		return bar, styleWait
	}
	return bar, styleGood
}

// columns of a connection, or of a group of them.
func (v *topView) connColumns() []topColumn[topConn] {
	type conn = topConn
	plain := func(f func(c *conn) string) func(*conn, int) (string, string) {
		return func(c *conn, _ int) (string, string) { return f(c), "" }
	}
	columns := []topColumn[conn]{
		{head: "ID", width: 5, rank: 8, cell: plain(func(c *conn) string { return fmt.Sprint(c.ID) })},
		{head: "PEER", width: 18, rank: 0, left: true, grows: 36, cell: func(c *conn, width int) (string, string) { return peerText(c, width), "" }},
		{head: "STATE", width: 10, rank: 1, left: true, grows: 12, cell: func(c *conn, _ int) (string, string) { return c.State, stateStyle(c.State) }},
		{head: "IN/s", width: 7, rank: 2, cell: plain(func(c *conn) string { return count(c.In) })},
		{head: "OUT/s", width: 7, rank: 2, cell: plain(func(c *conn) string { return count(c.Out) })},
		{head: "IN", width: 9, rank: 3, cell: plain(func(c *conn) string { return bandwidth(c.MBIn) })},
		{head: "OUT", width: 9, rank: 3, cell: plain(func(c *conn) string { return bandwidth(c.MBOut) })},
		{head: "LAG", width: 5, rank: 2, cell: plain(func(c *conn) string { return fmt.Sprint(c.AckLag) })},
		{head: "QUEUED", width: 6, rank: 4, cell: plain(func(c *conn) string { return fmt.Sprint(c.Queued) })},
		{head: "SENT", width: 5, rank: 6, cell: plain(func(c *conn) string { return fmt.Sprint(c.Sent) })},
		{head: "CORE", width: 4, rank: 5, cell: plain(coreText)},
		{head: "RECONN", width: 6, rank: 6, cell: plain(func(c *conn) string { return fmt.Sprint(c.Reconnects) })},
	}
	if v.history != nil && !v.group {
		columns = append(columns, topColumn[conn]{head: "TREND", width: 12, rank: 7, left: true, cell: func(c *conn, width int) (string, string) {
			return curve(v.history.conns[c.ID], width), styleDim
		}})
	}
	return append(columns, topColumn[conn]{head: "POLICY", width: 15, rank: 5, left: true, grows: 200, cell: func(c *conn, _ int) (string, string) {
		return policyText(c), ""
	}})
}

// peerText is who the peer is and where, as much of it as there is room for.
func peerText(c *topConn, width int) string {
	switch {
	case c.members > 1:
		return fmt.Sprintf("%s × %d", c.Entity, c.members)
	case c.Entity == "" || c.Remote == "":
		return c.Peer
	}
	full := c.Entity + " " + c.Remote
	if utf8.RuneCountInString(full) <= width {
		return full
	}
	return c.Entity + " " + c.Remote[strings.LastIndexByte(c.Remote, ':'):]
}

func stateStyle(state string) string {
	switch state {
	case "ready":
		return styleGood
	case "connecting", "wait":
		return styleBad
	}
	return styleWait
}

// coreText is the core, and the one that was meant if that is another.
func coreText(c *topConn) string {
	switch {
	case c.Core == severalCores:
		return "*"
	case c.Core != c.Intended:
		return fmt.Sprintf("%d≠%d", c.Core, c.Intended)
	}
	return fmt.Sprint(c.Core)
}

func policyText(c *topConn) string {
	policy := c.Policy
	if c.Mode == "secure" {
		policy += ", secure"
	}
	if c.Throttled {
		policy += ", throttled"
	}
	if c.Error != "" {
		policy += ": " + c.Error
	}
	return policy
}

// conns writes the connections that fit, from the first one that is scrolled to.
func (v *topView) conns(f *topFrame, o topOrder) {
	rows := f.Conns
	if v.group {
		rows = grouped(rows)
	}
	columns := fitColumns(v.connColumns(), v.width)
	v.line(styleHead, v.pad(tableHead(columns)))
	shown := len(rows)
	if v.height > 0 {
		// Two lines of title, two blank ones, two heads, the foot.
		shown = max(0, min(shown, v.height-7-len(f.Cores)))
	}
	v.first = max(0, min(v.first, len(rows)-shown))
	v.page = shown
	for i := range rows[v.first:][:shown] {
		v.row(tableRow(v, columns, &rows[v.first+i]))
	}
	what := "connection"
	if v.group {
		what = "peer"
	}
	if len(rows) != 1 {
		what += "s"
	}
	foot := fmt.Sprintf("%d %s by %s", len(rows), what, o)
	if shown < len(rows) {
		foot = fmt.Sprintf("%d-%d of %s", v.first+min(1, shown), v.first+shown, foot)
	}
	if v.live {
		foot += "   q quit  s S order  g group  ↑↓ scroll  space stop"
	}
	v.line(styleDim, foot)
}

// row writes a line that has its width and its styles already.
func (v *topView) row(text string) { v.b.WriteString(text + "\n") }

// share is a part of the time.
func share(v float64) string { return fmt.Sprintf("%.0f%%", v*100) }

// count is a number per second in at most seven columns.
func count(v float64) string { return strings.ReplaceAll(quantity.Rate(v, ""), " ", "") }

// bandwidth is a rate given in 10^6 bytes per second.
func bandwidth(mb float64) string {
	if mb == 0 {
		return "0"
	}
	return quantity.Rate(mb*1e6, "B/s")
}
