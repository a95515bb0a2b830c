// Package scripttest is what the scripts of both session machines have in common: the
// arguments of a command, and addresses that go by a name.
package scripttest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Args are the facts of one event of a script. What is wrong with them ends the test.
type Args struct {
	T *testing.T
	D *datadriven.TestData
}

// Fatal ends the test, with the place in the script.
func (a Args) Fatal(err error) {
	a.T.Helper()
	a.T.Fatalf("%s: %v", a.D.Pos, err)
}

// Has says whether an argument is there.
func (a Args) Has(key string) bool { return a.D.HasArg(key) }

// Str is the value of an argument.
func (a Args) Str(key, def string) string {
	if arg, ok := a.D.Arg(key); ok && len(arg.Vals) == 1 {
		return arg.Vals[0]
	}
	return def
}

// Num is the value of an argument that is a number.
func (a Args) Num(key string, def uint64) uint64 {
	n, err := strconv.ParseUint(a.Str(key, fmt.Sprint(def)), 10, 64)
	if err != nil {
		a.Fatal(err)
	}
	return n
}

// Times plays an event as often as the argument times says.
func (a Args) Times(play func() string) (last string) {
	for range a.Num("times", 1) {
		last = play()
	}
	return last
}

// Entity is the argument entity, as osd.1.
func (a Args) Entity() wire.EntityName {
	text := a.Str("entity", "")
	if text == "" {
		return wire.EntityName{}
	}
	n, err := wire.ParseEntityName(text)
	if err != nil {
		a.Fatal(err)
	}
	return n
}

// Type is the value of an argument that is a type of entities, as osd.
func (a Args) Type(key string, def wire.EntityType) wire.EntityType {
	typ, err := wire.ParseEntityType(a.Str(key, def.String()))
	if err != nil {
		a.Fatal(err)
	}
	return typ
}

// Blank stands for the blank address among Names.
const Blank = "-"

// Names are addresses in the form of wire.ParseAddr, by the names that scripts use.
type Names map[string]string

// Addr is the address of a name; the blank one if there is none.
func (n Names) Addr(name string) wire.Addr {
	text, ok := n[name]
	if !ok || text == Blank {
		return wire.Addr{}
	}
	a, err := wire.ParseAddr(text)
	if err != nil {
		panic(err)
	}
	return a
}

// Vec are the addresses of names with + between them.
func (n Names) Vec(names string) (v wire.AddrVec) {
	for name := range strings.SplitSeq(names, "+") {
		if name != "" {
			v = append(v, n.Addr(name))
		}
	}
	return v
}

// Short writes the addresses in a text by their names.
func (n Names) Short(text string) string {
	for name, a := range n {
		if a != Blank {
			text = strings.ReplaceAll(text, n.Addr(name).String(), name)
		}
	}
	return text
}

// Indent marks the lines of a text as those of an event within another one.
func Indent(text string) string { return "  | " + strings.ReplaceAll(text, "\n", "\n  | ") }
