package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// topView draws frames as text.
type topView struct {
	width, height int // of the screen; height 0: as long as it gets
	color         bool
	live          bool
	stopped       bool
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

// render draws one frame.
func (v *topView) render(f *topFrame, o topOrder) string {
	v.b.Reset()
	overflows := uint64(0)
	for i := range f.Cores {
		overflows += f.Cores[i].Overflows
	}
	state := ""
	if v.stopped {
		state = "   stopped, space continues"
	}
	v.line(styleTitle, fmt.Sprintf("ringmsgr top   %s %s   pid %d   %s   steering %s%s", f.Name, f.Addrs, f.PID, f.Backend, f.Steering, state))
	alarm := ""
	if overflows > 0 {
		alarm = fmt.Sprintf("   %d ring overflows", overflows)
	}
	v.line("", fmt.Sprintf("%s   %d open, %d half open, %d made   %s in flight   in %s/s %s   out %s/s %s%s",
		f.Time.Format("15:04:05"), f.Open, f.HalfOpen, f.Made, bytesText(float64(f.InFlight)),
		count(f.Total.In), bandwidth(f.Total.MBIn), count(f.Total.Out), bandwidth(f.Total.MBOut), alarm))
	v.line("", "")
	v.line(styleHead, v.pad(fmt.Sprintf("%4s  %-21s %6s %8s %8s %11s %11s %9s %9s %7s %4s %4s %4s %5s %6s", "CORE", "BUSY", "CONNS",
		"IN/s", "OUT/s", "IN", "OUT", "WRITES/s", "CALLS/s", "MSG/WR", "SEND", "RECV", "DISP", "RING", "STALLS")))
	for i := range f.Cores {
		v.core(&f.Cores[i])
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

const barCells = 15

func (v *topView) core(c *topCore) {
	busy, style := "not known", styleDim
	if c.Busy < 0 && c.topRates == (topRates{}) {
		busy = "idle"
	}
	if c.Busy >= 0 {
		n := int(math.Round(c.Busy * barCells))
		busy = strings.Repeat("█", n) + strings.Repeat("·", barCells-n) + fmt.Sprintf(" %3.0f%%", c.Busy*100)
		style = map[bool]string{true: styleWait, false: styleGood}[c.Busy >= 0.8]
	}
	if c.Stalled {
		busy, style = "STALLED", styleBad
	}
	switch c.State {
	case "failed":
		busy, style = "FAILED", styleBad
	case "draining":
		busy, style = "being removed", styleWait
	}
	// Behind a large message there are several writes.
	per := "-"
	if c.Writes > 0 {
		per = fmt.Sprintf("%.1f", c.Out/c.Writes)
	}
	rest := fmt.Sprintf(" %6d %8s %8s %11s %11s %9s %9s %7s %4s %4s %4s %5d %6d", c.Conns, count(c.In), count(c.Out), bandwidth(c.MBIn),
		bandwidth(c.MBOut), count(c.Writes), count(c.Syscalls), per, share(c.Shares.Send), share(c.Shares.Receive), share(c.Shares.Dispatch),
		c.InFlight, c.Stalls)
	busy += strings.Repeat(" ", max(0, 21-utf8.RuneCountInString(busy)))
	room := v.width - 27
	if v.width <= 0 || room > 0 {
		v.b.WriteString(fmt.Sprintf("%4d  ", c.Core) + v.styled(style, busy) + cut(rest, room) + "\n")
	}
}

func (v *topView) conns(f *topFrame, o topOrder) {
	peer := 24
	for i := range f.Conns {
		peer = max(peer, min(40, utf8.RuneCountInString(f.Conns[i].Peer)))
	}
	v.line(styleHead, v.pad(fmt.Sprintf("%5s  %-*s %-12s %4s %8s %8s %11s %11s %6s %5s %5s %6s  %s", "ID", peer, "PEER", "STATE", "CORE",
		"IN/s", "OUT/s", "IN", "OUT", "QUEUED", "SENT", "LAG", "RECONN", "POLICY")))
	shown := len(f.Conns)
	if v.height > 0 {
		// Two lines of title, two blank ones, two heads, the foot.
		shown = max(0, min(shown, v.height-7-len(f.Cores)))
	}
	for i := range f.Conns[:shown] {
		v.conn(&f.Conns[i], peer)
	}
	foot := fmt.Sprintf("by %s", o)
	if n := len(f.Conns) - shown; n > 0 {
		foot = fmt.Sprintf("%d more, by %s", n, o)
	}
	if v.live {
		foot += "   q quit   s S order   space stop"
	}
	v.line(styleDim, foot)
}

func (v *topView) conn(c *topConn, peer int) {
	style := styleWait
	switch c.State {
	case "ready":
		style = styleGood
	case "connecting", "wait":
		style = styleBad
	}
	policy := c.Policy
	if c.Mode == "secure" {
		policy += ", secure"
	}
	if c.Error != "" {
		policy += ": " + c.Error
	}
	if c.Throttled {
		policy += ", throttled"
	}
	core := fmt.Sprint(c.Core)
	if c.Core != c.Intended {
		core = fmt.Sprintf("%d≠%d", c.Core, c.Intended)
	}
	rest := fmt.Sprintf(" %4s %8s %8s %11s %11s %6d %5d %5d %6d  %s", core, count(c.In), count(c.Out), bandwidth(c.MBIn), bandwidth(c.MBOut),
		c.Queued, c.Sent, c.AckLag, c.Reconnects, policy)
	at := 5 + 2 + peer + 1
	room := v.width - at - 12
	if v.width <= 0 || room > 0 {
		v.b.WriteString(fmt.Sprintf("%5d  %-*s ", c.ID, peer, cut(c.Peer, peer)) + v.styled(style, fmt.Sprintf("%-12s", c.State)) + cut(rest, room) + "\n")
	}
}

// share is a part of the time.
func share(v float64) string { return fmt.Sprintf("%.0f%%", v*100) }

// count is a number per second in at most seven columns.
func count(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.2fG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v > 0 && v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// bandwidth is a rate given in 10^6 bytes per second.
func bandwidth(mb float64) string {
	switch {
	case mb >= 1e3:
		return fmt.Sprintf("%.2f GB/s", mb/1e3)
	case mb >= 1:
		return fmt.Sprintf("%.1f MB/s", mb)
	case mb > 0:
		return fmt.Sprintf("%.0f kB/s", mb*1e3)
	}
	return "0"
}

// bytesText is a number of bytes.
func bytesText(n float64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", n/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
	return fmt.Sprintf("%.0f B", n)
}
