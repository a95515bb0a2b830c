package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/ringmsgr/internal/traffic"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/trace"
)

func decodeCommand(e env) *cobra.Command {
	d := &decoding{}
	c := &cobra.Command{
		Use: "decode FILE", Short: "print the frames of a recording or a trace, and their errors",
		Example: "  ringmsgr decode --brief FILE.pcap",
		Long: `Reads a recording of tcpdump or Wireshark (pcap or pcapng), or a trace of --trace,
and prints every frame of msgr2.0, msgr2.1 and msgr1 in it, the states of each
connection, and errors: refusals, damaged frames, sequence numbers that are missing
or come twice, acks of messages that were not sent, frames out of place, keepalives
without an answer. - reads standard input.

A line begins with the number of the connection and the seconds since the first
record; > is a frame of the side that has dialled, < a frame of the other side,
= a state, ! an error, ~ a gap.

Connections in mode secure are decrypted if their keys were logged: by --keylog of
a command on one side, with --keys FILE here. Payloads are cut to --cut bytes.

Record with: tcpdump -i any -s 0 -w FILE tcp port 3300` + shapes(`one record for each line of text, with those fields that it has:
{"time":"...","socket":N,"event":"open|banner|frame|state|wrong|bad|lost|end",
 "from":"connector|acceptor","connector":"...","acceptor":"...","recorder":"...",
 "protocol":"msgr2.1|msgr2.0|msgr2|msgr1","tag":"...","segments":[N,...],"fields":{...},
 "payload":["hex",...],"compressed":true,"aborted":true,"text":"...","count":N,
 "error":"..."}`),
		RunE: func(c *cobra.Command, args []string) error { return d.run(c.Context(), e, args) },
	}
	fs := c.Flags()
	fs.BoolVar(&d.json, "json", false, "write JSON")
	fs.StringVar(&d.keys, "keys", "", "`FILE` with the keys of connections in mode secure")
	fs.BoolVar(&d.brief, "brief", false, "leave the frames out: only connections, states and errors")
	cli.BytesVar(fs, &d.cut, "cut", trace.DefaultCut, 0, 256<<20,
		"payload to print of each part of a message: `BYTES`")
	return c
}

// decoding is one run of the command.
type decoding struct {
	json  bool
	keys  string
	brief bool
	cut   int64

	judge *traffic.Judge
	out   *bufio.Writer
	stop  func()    // ends the input
	zero  time.Time // of the first record
	count struct{ conns, frames, wrong uint64 }
}

func (d *decoding) run(ctx context.Context, e env, args []string) error {
	var keys *trace.Keys
	if d.keys != "" {
		var err error
		if keys, err = scope.File(ctx, "--keys", d.keys, trace.ReadKeys); err != nil {
			return err
		}
	}
	d.judge, d.out = traffic.NewJudge(), bufio.NewWriter(e.stdout)
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	r := bufio.NewReaderSize(cli.Input(ctx, args[0], e.stdin), 64<<10)
	whole := true          // the recording did not end within a packet
	head, err := r.Peek(4) // which fails for less than the head of either
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		err = errors.New("it is empty: neither a recording nor a trace")
	case traffic.Is(head):
		opt := trace.StreamOptions{Keys: keys, Cut: cmp.Or(int(d.cut), -1), Emit: d.record}
		whole, err = traffic.Read(r, opt)
	default:
		err = d.trace(r)
	}
	switch {
	case ctx.Err() != nil:
		err = nil // the user has seen enough, or the output is not taken
	case err == nil && !whole:
		err = errors.New("the recording ends within a packet: it was cut, or tcpdump still writes to it")
	case err == nil && d.count.conns+d.count.frames == 0:
		err = errors.New("nothing in it is msgr2 or msgr1: look at the port that was recorded")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], cli.Cause(err))
	}
	if d.count.conns+d.count.frames > 0 && !d.json {
		fmt.Fprintf(d.out, "%d connections, %d frames; %d things are wrong\n", d.count.conns, d.count.frames, d.count.wrong)
	}
	return errors.Join(err, d.out.Flush())
}

// maxLine bounds a line of a trace, in bytes: it takes the largest message, in hex. maxOther bounds a
// line that does not begin as a record.
const (
	maxLine  = 256 << 20
	maxOther = 1 << 20
)

func (d *decoding) trace(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	lines.Split(func(p []byte, end bool) (int, []byte, error) {
		if n, line, err := bufio.ScanLines(p, end); n > 0 || len(p) <= maxOther || p[0] == '{' {
			return n, line, err
		}
		return 0, nil, bufio.ErrTooLong
	})
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var rec trace.Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil || rec.Event == "" {
			if n > 1 && !lines.Scan() && lines.Err() == nil {
				return errors.New("the trace ends within a record: it was cut, or a process still writes to it")
			}
			return fmt.Errorf("line %d is no record of a trace, and the file is no recording of tcpdump", n)
		}
		if rec.Event != trace.State && rec.Event != trace.Wrong { // of a run before
			d.record(rec)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %d bytes, and is no record of a trace", maxOther)
	}
	return lines.Err()
}

func (d *decoding) record(r trace.Record) {
	notes := d.judge.Look(&r)
	switch r.Event {
	case trace.Open:
		d.count.conns++
	case trace.Banner, trace.Frame:
		d.count.frames++
	case trace.Bad:
		d.count.wrong++
	}
	if !d.brief || r.Event != trace.Banner && r.Event != trace.Frame {
		d.print(&r)
	}
	for i := range notes {
		if notes[i].Event == trace.Wrong {
			d.count.wrong++
		}
		d.print(&notes[i])
	}
}

func (d *decoding) print(r *trace.Record) {
	if d.zero.IsZero() {
		d.zero = r.Time
	}
	var err error
	if d.json {
		err = cli.WriteJSON(d.out, r)
	} else {
		_, err = fmt.Fprintln(d.out, recordText(r, r.Time.Sub(d.zero)))
	}
	if err != nil { // which d.out keeps: a record has JSON
		d.stop()
	}
}

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
		sign, text = "~", about(r.From)+clean(r.Error)
		switch {
		case r.Socket == 0:
			text = fmt.Sprintf("%d records are missing: %s", r.Count, clean(r.Error))
		case r.Count > 0:
			text = about(r.From) + cli.Bytes(int64(min(r.Count, 1<<62))) + ": " + clean(r.Error)
		}
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
				if i < len(r.Payload) && r.Payload[i] != "" { // the beginning, in hex
					text := clean(r.Payload[i])
					if len(text) < 2*r.Segments[i+1] {
						text += ".."
					}
					parts = append(parts, "("+text+")")
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

// fieldsText are the fields of a frame: the names of the JSON, and the values that are not zero.
func fieldsText(fields *trace.Fields) string {
	if fields == nil {
		return ""
	}
	v := reflect.ValueOf(fields).Elem()
	var parts []string
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		text := fmt.Sprintf("%s %v", name, f.Interface())
		switch f := f.Interface().(type) {
		case bool:
			text = name
		case time.Time:
			text = f.UTC().Format("15:04:05.000000")
		case []string:
			text = name + " " + strings.Join(f, ",")
		case uint64:
			if strings.HasSuffix(name, "cookie") {
				text = fmt.Sprintf("%s %x", name, f)
			}
		}
		parts = append(parts, text)
	}
	return clean(strings.Join(parts, " "))
}

// clean keeps the bytes of a hostile file from controlling a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
