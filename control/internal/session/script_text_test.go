package session_test

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
)

// plainTexts are the actions without facts, as the scripts have them.
var plainTexts = map[session.Action]string{
	session.Only{}:            "end other sessions with the peer",
	session.HintDropped{}:     "forget the owner core of the peer",
	session.Requeue{}:         "requeue all that was sent",
	session.ResetPeer{}:       "requeue all that was sent, number from 1",
	session.TellRemoteReset{}: "tell the user: remote reset",
	session.Silence{}:         "mute the handler",
	session.CloseIO{}:         "close the handler",
	session.Probe{}:           "keepalive on the existing connection",
	session.StopTimer{}:       "stop the timer",
	session.Superseded{}:      "overtaken",
}

// textOf is an action as the scripts have it.
func (d *dialect) textOf(act session.Action) string {
	switch a := act.(type) {
	case session.StateChanged:
		return fmt.Sprintf("%v -> %v (%v)", a.From, a.To, a.By)
	case session.Illegal:
		return fmt.Sprint("illegal: ", a.Err)
	case session.Faulted:
		return fmt.Sprintf("fault in %v: %v", a.From, a.Err)
	case session.Count:
		return fmt.Sprint("count ", a.What)
	case session.Renamed:
		return fmt.Sprintf("peer renamed from %v to %v", a.From, a.To) + opt(a.Also, ", found under it")
	case session.Disproved:
		return fmt.Sprint("believe no claim to ", a.Addr)
	case session.HintReceived:
		return fmt.Sprint("owner core of the peer by cookie ", a.Cookie)
	case session.Remember:
		return fmt.Sprintf("remember the end of %v cookie %d, global_seq %d", a.Name.Peer, a.Name.Cookie, a.PeerGlobalSeq)
	case session.End:
		return "connection is over" + opt(a.Err != nil, fmt.Sprint(": ", a.Err))
	case session.NewConn:
		return "make a connection" + opt(a.ReplaceLossy, " in place of the lossy one")
	case session.TakeOver:
		return "give the socket to the existing connection" + opt(a.Reset, ", reset it")
	case session.Suspend:
		return "suspend the handler" + opt(a.Notify, ", notify of work") + opt(a.ReplyTo != 0, fmt.Sprint(", snapshot to attempt ", a.ReplyTo))
	case session.RequeueUpTo:
		return fmt.Sprint("requeue what was sent above ", a.Seq)
	case session.ResetIO:
		return "reset in_seq" + opt(a.Full, ", out_seq, drop the queues") + opt(a.Anywhere, ", number from anywhere")
	case session.TellReset:
		return "tell the user: reset" + opt(a.Replace, ", replaced")
	case session.MoveHandler:
		return fmt.Sprint("move the handler to the socket of attempt ", a.Attempt) +
			opt(a.Accepted, ", accepted") + opt(a.Replace, ", replacing another connection")
	case session.Open:
		return fmt.Sprint("open the handler on the socket of attempt ", a.Attempt)
	case session.StartTimer:
		return fmt.Sprintf("start timer %d: %v", a.Run, a.After)
	case session.Log:
		return "log: " + a.Text
	case session.Dial:
		return fmt.Sprint("dial, attempt ", a.Attempt)
	case session.Cancel:
		return "cancel the attempt" + opt(a.Err != nil, fmt.Sprint(": ", a.Err))
	case session.Hangup:
		return fmt.Sprint("hang up: ", a.Err)
	case session.Send:
		return "send " + d.frame(a.Frame)
	}
	return plainTexts[act]
}

// opt is text if on, else nothing.
func opt(on bool, text string) string {
	if on {
		return text
	}
	return ""
}
