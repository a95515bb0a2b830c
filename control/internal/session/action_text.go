package session

import (
	"fmt"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The actions as text, for scripts and for whoever debugs.

// opt is text if on, else nothing.
func opt(on bool, text string) string {
	if on {
		return text
	}
	return ""
}

func (a StateChanged) String() string { return fmt.Sprintf("%v -> %v (%v)", a.From, a.To, a.By) }
func (a Illegal) String() string      { return fmt.Sprint("illegal: ", a.Err) }
func (a Faulted) String() string      { return fmt.Sprintf("fault in %v: %v", a.From, a.Err) }
func (a Count) String() string        { return fmt.Sprint("count ", a.What) }
func (a Renamed) String() string {
	return fmt.Sprintf("peer renamed from %v to %v", a.From, a.To) + opt(a.Also, ", found under it")
}

func (Only) String() string        { return "end other sessions with the peer" }
func (a Disproved) String() string { return fmt.Sprint("believe no claim to ", a.Addr) }

func (a HintReceived) String() string {
	return fmt.Sprint("owner core of the peer by cookie ", a.Cookie)
}
func (HintDropped) String() string { return "forget the owner core of the peer" }

func (a Remember) String() string {
	return fmt.Sprintf("remember the end of %v cookie %d, global_seq %d", a.Name.Peer, a.Name.Cookie, a.PeerGlobalSeq)
}

func (a End) String() string {
	return "connection is over" + opt(a.Err != nil, fmt.Sprint(": ", a.Err))
}

func (a NewConn) String() string {
	return "make a connection" + opt(a.ReplaceLossy, " in place of the lossy one")
}
func (a TakeOver) String() string {
	return "give the socket to the existing connection" + opt(a.Reset, ", reset it")
}

func (a Suspend) String() string {
	return "suspend the handler" + opt(a.Notify, ", notify of work") + opt(a.ReplyTo != 0, fmt.Sprint(", snapshot to attempt ", a.ReplyTo))
}

func (Requeue) String() string       { return "requeue all that was sent" }
func (a RequeueUpTo) String() string { return fmt.Sprint("requeue what was sent above ", a.Seq) }
func (ResetPeer) String() string     { return "requeue all that was sent, number from 1" }
func (a ResetIO) String() string {
	return "reset in_seq" + opt(a.Full, ", out_seq, drop the queues")
}

func (a TellReset) String() string {
	return "tell the user: reset" + opt(a.Replace, ", replaced")
}
func (TellRemoteReset) String() string { return "tell the user: remote reset" }

func (a MoveHandler) String() string {
	return fmt.Sprint("move the handler to the socket of attempt ", a.Attempt) +
		opt(a.Accepted, ", accepted") + opt(a.Replace, ", replacing another connection")
}

func (a Open) String() string {
	return fmt.Sprint("open the handler on the socket of attempt ", a.Attempt)
}
func (Silence) String() string      { return "mute the handler" }
func (CloseIO) String() string      { return "close the handler" }
func (Probe) String() string        { return "keepalive on the existing connection" }
func (a StartTimer) String() string { return fmt.Sprintf("start timer %d: %v", a.Run, a.After) }
func (StopTimer) String() string    { return "stop the timer" }
func (a Log) String() string        { return "log: " + a.Text }
func (a Dial) String() string       { return fmt.Sprint("dial, attempt ", a.Attempt) }
func (a Cancel) String() string {
	return "cancel the attempt" + opt(a.Err != nil, fmt.Sprint(": ", a.Err))
}

func (a Send) String() string     { return "send " + FrameText(a.Frame) }
func (a Hangup) String() string   { return fmt.Sprint("hang up: ", a.Err) }
func (Superseded) String() string { return "overtaken" }

// FrameText is a frame with its fields.
func FrameText(f Frame) string {
	var b strings.Builder
	b.WriteString(frameName(f))
	add := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	switch f := f.(type) {
	case wire2.ClientIdent:
		add("addrs=%v target=%v gid=%d global_seq=%d cookie=%d%s", f.Addrs, f.TargetAddr, f.GID, f.GlobalSeq, f.Cookie,
			opt(f.Flags&wire.IdentLossy != 0, " lossy"))
	case wire2.ServerIdent:
		add("addrs=%v gid=%d global_seq=%d cookie=%d%s", f.Addrs, f.GID, f.GlobalSeq, f.Cookie, opt(f.Flags&wire.IdentLossy != 0, " lossy"))
	case wire2.IdentMissingFeatures:
		add("features=%#x", uint64(f.Features))
	case wire2.SessionReconnect:
		add("addrs=%v client_cookie=%d server_cookie=%d global_seq=%d connect_seq=%d msg_seq=%d",
			f.Addrs, f.ClientCookie, f.ServerCookie, f.GlobalSeq, f.ConnectSeq, f.MsgSeq)
	case wire2.SessionReconnectOK:
		add("msg_seq=%d", f.MsgSeq)
	case wire2.SessionRetry:
		add("connect_seq=%d", f.ConnectSeq)
	case wire2.SessionRetryGlobal:
		add("global_seq=%d", f.GlobalSeq)
	case wire2.SessionReset:
		add("full=%v", f.Full)
	}
	return b.String()
}
