package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// topic is something that more than one command has to do with.
type topic struct{ name, summary, text string }

func topics() []topic {
	return []topic{
		{"addresses", "how a peer is named", `An address is written as Ceph writes it: v2:HOST:PORT/NONCE, such as
v2:10.0.0.1:3300/0 or v2:[fd00::1]:6800/1234. What is left out is v2, port 3300,
nonce 0, so that "localhost" is the monitor of this machine. Host names are looked
up.

A peer is reached by its own address to the last part only, the nonce included:
monitors have 0, an OSD has a number that "ceph osd dump" prints, and "ringmsgr
serve" prints its own. Nonce 0 reaches whoever of ours is there.`},
		{"policies", "what a broken connection means", `--policy says what becomes of a session when its TCP connection breaks:

  lossy-client, stateless-server      it is over; what was not delivered is lost
  stateless-registered-server         the same, and one session for each address
  lossless-client, stateful-server    the client connects again, and every message
                                      arrives exactly once and in order
  lossless-peer, lossless-peer-reuse  the same, and both sides dial

Both sides decide: if the server's is lossy, so is the session. A server's never
dials.`},
		{"exit", "exit statuses, and where output goes", `The exit status is 0 if a command did what it was asked for, 1 if it could not, 2
if it was called wrongly.

Results go to standard output, and with --json nothing else does: one object per
line. Errors, and the log from --log-level on, go to standard error.`},
		{"recording", "how to see what goes over the wire", `  tcpdump -i any -s 0 -w FILE.pcap tcp port 3300
  ringmsgr decode FILE.pcap

or, on one of our own ends, whatever the mode:

  ringmsgr serve --trace FILE.jsonl
  ringmsgr decode FILE.jsonl

What tcpdump records of a connection in mode secure is encrypted. --keylog KEYS on
one end, if it is ours, writes down its keys; decode takes them with --keys KEYS.
Whoever has that file reads what those connections carry: delete it afterwards.`},
	}
}

// helpNames are what help can be asked about.
func helpNames() (names []string) {
	for _, c := range commands() {
		names = append(names, c.name)
	}
	for _, t := range topics() {
		names = append(names, t.name)
	}
	return names
}

// help prints the list of commands, or what there is to say about one, or a topic.
func help(e env, args []string) int {
	if len(args) == 0 {
		printCommands(e.stdout)
		return cli.OK
	}
	if len(args) == 1 {
		for _, c := range commands() {
			if c.name == args[0] {
				fs := cli.NewFlags(c.name)
				c.setup(fs)
				c.printHelp(e.stdout, fs)
				return cli.OK
			}
		}
		for _, t := range topics() {
			if t.name == args[0] {
				fmt.Fprintf(e.stdout, "%s: %s\n\n%s\n", t.name, t.summary, t.text)
				return cli.OK
			}
		}
	}
	fmt.Fprintf(e.stderr, "ringmsgr help: nothing about %q: want one of %s\n", strings.Join(args, " "), strings.Join(helpNames(), ", "))
	return cli.Usage
}

// printTopics lists them.
func printTopics(w io.Writer) {
	for _, t := range topics() {
		fmt.Fprintf(w, "  ringmsgr %-22s %s\n", "help "+t.name, t.summary)
	}
}
