package main

import (
	"cmp"
	"fmt"
	"reflect"
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
		sign, text = "=", "end: "+clean(cmp.Or(r.Error, "closed"))
	case trace.Lost:
		text = lostText(r)
		sign = "~"
	case trace.Bad:
		sign, text = "!", about(r.From)+about(r.Tag)+clean(r.Error)
	case trace.State:
		sign, text = "=", clean(r.Text)
	case trace.Wrong:
		sign, text = "!", about(r.From)+clean(r.Text)
	default:
		text = clean(string(r.Event))
	}
	return fmt.Sprintf("%d %.6f %s %s", r.Socket, at.Seconds(), sign, text)
}

// about names the side, or the frame, that a text is about.
func about[S ~string](name S) string {
	if name == "" {
		return ""
	}
	return clean(string(name)) + ": "
}

// lostText says how many records or bytes are missing.
func lostText(r *trace.Record) string {
	if r.Socket == 0 {
		return fmt.Sprintf("%d records are missing: %s", r.Count, clean(r.Error))
	}
	if r.Count == 0 {
		return about(r.From) + clean(r.Error)
	}
	return about(r.From) + quantity.Bytes(int64(min(r.Count, 1<<62))) + ": " + clean(r.Error)
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
	if text := fieldsText(r.Fields); text != "" {
		parts = append(parts, text)
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
	if len(text) < 2*size {
		text += ".."
	}
	return clean(text)
}

// fieldsText is what a frame says: the names of the JSON and their values, without what is
// false or left out there.
func fieldsText(fields any) string {
	v := reflect.Indirect(reflect.ValueOf(fields))
	if v.Kind() != reflect.Struct {
		return ""
	}
	var parts []string
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f := v.Field(i)
		if option == "omitempty" && f.IsZero() {
			continue
		}
		switch f := f.Interface().(type) {
		case bool:
			if f {
				parts = append(parts, name)
			}
			continue
		case time.Time:
			parts = append(parts, f.UTC().Format("15:04:05.000000"))
			continue
		case []string:
			parts = append(parts, name, strings.Join(f, ","))
			continue
		}
		if n, ok := f.Interface().(uint64); ok && strings.HasSuffix(name, "cookie") {
			parts = append(parts, fmt.Sprintf("%s %x", name, n))
		} else {
			parts = append(parts, fmt.Sprintf("%s %v", name, f.Interface()))
		}
	}
	return clean(strings.Join(parts, " "))
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
