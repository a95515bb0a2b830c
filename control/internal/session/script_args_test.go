package session_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// args are the facts of one event of a script. A wrong one ends the test.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

// fatal ends the test, with the place in the script.
func (a args) fatal(err error) {
	a.t.Helper()
	a.t.Fatalf("%s: %v", a.d.Pos, err)
}

// has says whether an argument is there.
func (a args) has(key string) bool { return a.d.HasArg(key) }

// str is the value of an argument.
func (a args) str(key, def string) string {
	if arg, ok := a.d.Arg(key); ok && len(arg.Vals) == 1 {
		return arg.Vals[0]
	}
	return def
}

// num is the value of an argument that is a number.
func (a args) num(key string, def uint64) uint64 {
	n, err := strconv.ParseUint(a.str(key, fmt.Sprint(def)), 10, 64)
	if err != nil {
		a.fatal(err)
	}
	return n
}

// times plays an event as often as the argument times says.
func (a args) times(play func() string) (last string) {
	for range a.num("times", 1) {
		last = play()
	}
	return last
}

// entity is the argument entity, as osd.1.
func (a args) entity() wire.EntityName {
	text := a.str("entity", "")
	if text == "" {
		return wire.EntityName{}
	}
	n, err := wire.ParseEntityName(text)
	if err != nil {
		a.fatal(err)
	}
	return n
}

// kind is the value of an argument that is a type of entities, as osd.
func (a args) kind(key string) wire.EntityType {
	typ, err := wire.ParseEntityType(a.str(key, wire.OSD.String()))
	if err != nil {
		a.fatal(err)
	}
	return typ
}

// err is a failure by its name.
func (a args) err() error {
	switch name := a.str("err", "broken"); name {
	case "wrong-peer":
		return session.ErrWrongPeer
	case "wait":
		return session.ErrWait
	case "closed":
		return session.ErrClosed
	default:
		return errors.New(name)
	}
}

// blank stands for the blank address among names.
const blank = "-"

// names are addresses in the form of wire.ParseAddr, by their names in scripts. low is lower
// than high.
type names map[string]string

// addr is the address of a name, the blank one if there is none.
func (n names) addr(name string) wire.Addr {
	text, ok := n[name]
	if !ok || text == blank {
		return wire.Addr{}
	}
	a, err := wire.ParseAddr(text)
	if err != nil {
		panic(err)
	}
	return a
}

// vec are the addresses of names with + between them.
func (n names) vec(list string) (v wire.AddrVec) {
	for name := range strings.SplitSeq(list, "+") {
		if name != "" {
			v = append(v, n.addr(name))
		}
	}
	return v
}

// short writes the addresses in a text by their names.
func (n names) short(text string) string {
	for name, a := range n {
		if a != blank {
			text = strings.ReplaceAll(text, n.addr(name).String(), name)
		}
	}
	return text
}

var policies = map[string]session.Policy{
	"lossy-client":      {Lossy: true, Register: true},
	"odd-client":        {Lossy: true},
	"lossless-client":   {ResetCheck: true, Register: true},
	"lossless-peer":     {Standby: true, Register: true},
	"peer-reuse":        {Standby: true, ResetCheck: true, Register: true},
	"stateful-server":   {Server: true, Standby: true, ResetCheck: true, Register: true},
	"stateless-server":  {Lossy: true, Server: true},
	"registered-server": {Lossy: true, Server: true, Register: true},
}
