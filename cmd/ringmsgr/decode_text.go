package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

// recordText is a record in one line, at a time since the first one.
func recordText(r *trace.Record, at time.Duration) string {
	sign := map[trace.Side]string{trace.Connector: ">", trace.Acceptor: "<"}[r.From]
	var text string
	switch r.Event {
	case trace.Open:
		sign = "="
		text = fmt.Sprintf("%s -> %s, %s", clean(r.Connector), clean(r.Acceptor), r.Time.UTC().Format("2006-01-02 15:04:05.000000 UTC"))
		if r.Error != "" {
			text += ": " + clean(r.Error)
		}
	case trace.Banner, trace.Frame:
		text = frameText(r)
	case trace.End:
		sign, text = "=", "end: "+clean(orClosed(r.Error))
	case trace.Lost:
		text = lostText(r)
		sign = "~"
	case trace.Bad:
		sign, text = "!", byText(r.From)+strings.TrimSpace(clean(r.Tag)+" ")+colon(r.Tag)+clean(r.Error)
	case trace.State:
		sign, text = "=", clean(r.Text)
	case trace.Wrong:
		sign, text = "!", byText(r.From)+clean(r.Text)
	default:
		text = clean(string(r.Event))
	}
	return fmt.Sprintf("%d %.6f %s %s", r.Socket, at.Seconds(), sign, text)
}

func colon(tag string) string {
	if tag == "" {
		return ""
	}
	return ": "
}

func orClosed(why string) string {
	if why == "" {
		return "closed"
	}
	return why
}

// byText names the side that something is about.
func byText(s trace.Side) string {
	if s == "" {
		return ""
	}
	return clean(string(s)) + ": "
}

// lostText says how many records or bytes are missing.
func lostText(r *trace.Record) string {
	if r.Socket == 0 {
		return fmt.Sprintf("%d records are missing: %s", r.Count, clean(r.Error))
	}
	if r.Count == 0 {
		return byText(r.From) + clean(r.Error)
	}
	return byText(r.From) + quantity.Bytes(int64(min(r.Count, 1<<62))) + ": " + clean(r.Error)
}

// frameText is a frame and what it says.
func frameText(r *trace.Record) string {
	name := r.Tag
	if r.Event == trace.Banner {
		name = "BANNER " + r.Protocol
	} else if r.Protocol == trace.Msgr1 {
		name = strings.ToUpper(r.Tag)
	}
	parts := []string{clean(name)}
	if r.Fields != nil {
		parts = append(parts, fieldsText(r.Fields))
	}
	if n := len(r.Segments); n > 1 || r.Tag == "MESSAGE" {
		for i, part := range []string{"front", "middle", "data"} {
			if i+1 < n && r.Segments[i+1] > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", part, r.Segments[i+1]))
				if i < len(r.Payload) && r.Payload[i] != "" {
					parts = append(parts, "("+payloadText(r.Payload[i], r.Segments[i+1])+")")
				}
			}
		}
	}
	if r.Compressed {
		parts = append(parts, "compressed")
	}
	if r.Aborted {
		parts = append(parts, "given up")
	}
	if r.Error != "" {
		parts = append(parts, "malformed")
	}
	return strings.Join(parts, " ")
}

// payloadText is the beginning of a part in hex, with dots for the rest.
func payloadText(text string, size int) string {
	p, err := hex.DecodeString(text)
	if err != nil {
		return "?"
	}
	text = hex.EncodeToString(p)
	if len(p) < size {
		text += ".."
	}
	return text
}

// fieldsText is what a frame says.
func fieldsText(f any) string {
	switch f := f.(type) {
	case *trace.Features:
		return fmt.Sprintf("supported 0x%x required 0x%x", f.Supported, f.Required)
	case *trace.Hello:
		return fmt.Sprintf("I am %s, you are %v", f.EntityType, f.PeerAddr)
	case *trace.AuthRequest:
		return fmt.Sprintf("method %s modes %s payload %d", f.Method, strings.Join(f.Modes, ","), f.Payload)
	case *trace.AuthBadMethod:
		return fmt.Sprintf("method %s result %d allowed %s modes %s", f.Method, f.Result, strings.Join(f.Methods, ","), strings.Join(f.Modes, ","))
	case *trace.AuthMore:
		return fmt.Sprintf("payload %d", f.Payload)
	case *trace.AuthDone:
		return fmt.Sprintf("global_id %d mode %s payload %d", f.GlobalID, f.Mode, f.Payload)
	case *trace.AuthSignature:
		if !f.Signed {
			return "zero"
		}
		return "signed"
	case *trace.ClientIdent:
		return fmt.Sprintf("addrs %v target %v gid %d global_seq %d%s cookie %x", f.Addrs, f.Target, f.GID, f.GlobalSeq, lossyWord(f.Lossy), f.Cookie)
	case *trace.ServerIdent:
		return fmt.Sprintf("addrs %v gid %d global_seq %d%s cookie %x", f.Addrs, f.GID, f.GlobalSeq, lossyWord(f.Lossy), f.Cookie)
	case *trace.MissingFeatures:
		return f.Features.String()
	case *trace.Reconnect:
		return fmt.Sprintf("addrs %v cookies %x %x global_seq %d connect_seq %d msg_seq %d",
			f.Addrs, f.ClientCookie, f.ServerCookie, f.GlobalSeq, f.ConnectSeq, f.MsgSeq)
	case *trace.ReconnectOK:
		return fmt.Sprintf("msg_seq %d", f.MsgSeq)
	case *trace.Retry:
		return fmt.Sprintf("connect_seq %d", f.ConnectSeq)
	case *trace.RetryGlobal:
		return fmt.Sprintf("global_seq %d", f.GlobalSeq)
	case *trace.Reset:
		return fmt.Sprintf("full %t", f.Full)
	case *trace.CompressionRequest:
		return fmt.Sprintf("compress %t methods %s", f.Compress, strings.Join(f.Methods, ","))
	case *trace.CompressionDone:
		return fmt.Sprintf("compress %t method %s", f.Compress, f.Method)
	}
	return dataText(f)
}

// dataText is what the frames of an open session say, and those of msgr1.
func dataText(f any) string {
	switch f := f.(type) {
	case *trace.Message:
		text := fmt.Sprintf("seq %d tid %d type %d priority %d version %d", f.Seq, f.TID, f.Type, f.Priority, f.Version)
		if f.AckSeq > 0 {
			text += fmt.Sprintf(" ack %d", f.AckSeq)
		}
		if f.Source != "" {
			text += " from " + clean(f.Source)
		}
		return text
	case *trace.Ack:
		return fmt.Sprintf("seq %d", f.Seq)
	case *trace.Keepalive:
		return f.Stamp.UTC().Format("15:04:05.000000")
	case *trace.Addresses:
		if f.Seen == nil {
			return fmt.Sprintf("I am %v", f.Own)
		}
		return fmt.Sprintf("I am %v, you are %v", f.Own, *f.Seen)
	case *trace.Connect:
		text := fmt.Sprintf("as %s global_seq %d connect_seq %d protocol %d features %v", clean(f.HostType), f.GlobalSeq, f.ConnectSeq, f.Protocol, f.Features)
		if f.Method != "" {
			text += fmt.Sprintf(" method %s authorizer %d", clean(f.Method), f.Authorizer)
		}
		return text + lossyWord(f.Lossy)
	case *trace.Reply:
		text := fmt.Sprintf("global_seq %d connect_seq %d protocol %d features %v", f.GlobalSeq, f.ConnectSeq, f.Protocol, f.Features)
		if f.Authorizer > 0 {
			text += fmt.Sprintf(" authorizer %d", f.Authorizer)
		}
		return text + lossyWord(f.Lossy)
	case *trace.Seqs:
		return fmt.Sprintf("received %d", f.Received)
	}
	return ""
}

func lossyWord(lossy bool) string {
	if lossy {
		return " lossy"
	}
	return ""
}

// clean keeps what a hostile file says from controlling a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
