package cephx

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Entity is an entry of a keyring.
type Entity struct {
	Name wire.EntityName
	Key  Key
	// Caps are the capabilities by service, such as "osd": "allow rw". Nil is none.
	Caps map[string]string
}

// EntitySource finds entities for an [Authority]. It must be safe for concurrent use.
type EntitySource interface {
	// Lookup returns the entity of a name. The caller must not change or wipe it.
	Lookup(name wire.EntityName) (Entity, bool)
}

// Keyring is the content of a keyring file. It is an [EntitySource]; Lookup and the
// other reading methods may run at the same time, but not beside Set. The zero value is
// empty.
type Keyring struct {
	entities map[wire.EntityName]Entity
}

// maxKeyringLine bounds a line of a keyring file, in bytes.
const maxKeyringLine = 1 << 20

// The lines of a keyring file, which are those of a ceph.conf. A comment may end each line; after a backslash, and
// in quotes, no comment begins.
var (
	sectionLine = regexp.MustCompile(`^\[([^\]]*)\]\s*([;#].*)?$`)
	settingLine = regexp.MustCompile(
		`^([^=;#\[\]]+?)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:(?:\\.|[^"'\\;#\s])(?:\\.|[^\\;#])*?)?)\s*([;#].*)?$`)
	escaped = regexp.MustCompile(`\\(.)`)
)

// ReadKeyring parses a keyring file. Each entity may appear once and must have a key. One
// of a kind that is unknown is no error of the file: using it fails. The section "global" is ignored.
// Errors in the text name the line, or the last of those that go on by a backslash.
func ReadKeyring(r io.Reader) (*Keyring, error) {
	p := keyringParser{ring: new(Keyring)}
	return p.read(r)
}

// read takes a file. If it fails the keys that it has brought are overwritten.
func (p *keyringParser) read(r io.Reader) (*Keyring, error) {
	fail := func(line int, err error) (*Keyring, error) {
		p.ring.Wipe()
		p.cur.Key.Wipe()
		return nil, fmt.Errorf("%w: line %d: %w", errKeyring, line, err)
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxKeyringLine)
	n, text, goesOn := 0, "", false
	for more := true; more; {
		var err error
		if more = sc.Scan(); more {
			n++
			text, goesOn = strings.CutSuffix(text+sc.Text(), `\`)
		}
		if !goesOn || !more {
			err = p.line(n, text)
			text = ""
		}
		if err == nil && len(text) > maxKeyringLine {
			err = bufio.ErrTooLong
		}
		if err != nil {
			return fail(n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return fail(n+1, err)
	}
	if err := p.endSection(); err != nil {
		return fail(p.start, err)
	}
	return p.ring, nil
}

type keyringParser struct {
	ring   *Keyring
	cur    Entity
	start  int  // line of the section's head; 0 in no section of an entity
	global bool // in the section of that name
}

func (p *keyringParser) line(n int, text string) error {
	text = strings.TrimSpace(text)
	section, setting := sectionLine.FindStringSubmatch(text), settingLine.FindStringSubmatch(text)
	switch {
	case text == "", text[0] == '#', text[0] == ';':
		return nil
	case section != nil:
		if err := p.endSection(); err != nil {
			return fmt.Errorf("section from line %d: %w", p.start, err)
		}
		return p.beginSection(n, strings.TrimSpace(section[1]))
	case setting == nil:
		return malformed("neither a section nor of the form name = value")
	case p.global:
		return nil
	case p.start == 0:
		return malformed("text before the first section")
	}
	value := setting[2]
	if value != "" && (value[0] == '"' || value[0] == '\'') {
		value = value[1 : len(value)-1]
	}
	return p.setting(strings.Fields(strings.ReplaceAll(setting[1], "_", " ")), escaped.ReplaceAllString(value, "$1"))
}

func (p *keyringParser) beginSection(n int, text string) error {
	if p.cur, p.start, p.global = (Entity{}), 0, text == "global"; p.global {
		return nil
	}
	name, err := parseSectionName(text)
	if err != nil {
		return err
	}
	if _, ok := p.ring.entities[name]; ok {
		return malformed(fmt.Sprintf("%v appears twice", name))
	}
	p.cur, p.start = Entity{Name: name, Caps: map[string]string{}}, n
	return nil
}

// setting takes a setting, whose name has words.
func (p *keyringParser) setting(name []string, value string) error {
	if slices.Equal(name, []string{"key"}) {
		if !p.cur.Key.IsZero() {
			return malformed("second key of an entity")
		}
		k, err := parseKey(value, readAnyKey)
		p.cur.Key = k
		return err
	}
	if len(name) == 2 && name[0] == "caps" {
		if _, ok := p.cur.Caps[name[1]]; ok {
			return malformed(fmt.Sprintf("second caps for %s", name[1]))
		}
		p.cur.Caps[name[1]] = value
	}
	// Other settings, for example "auid" of old releases, are ignored.
	return nil
}

func (p *keyringParser) endSection() error {
	if p.start == 0 {
		return nil
	}
	if p.cur.Key.IsZero() {
		return fmt.Errorf("%v: %w", p.cur.Name, errNoKey)
	}
	p.ring.put(p.cur)
	return nil
}

// parseSectionName accepts entity names and "mon.", whose id is empty.
func parseSectionName(s string) (wire.EntityName, error) {
	if typ, id, ok := strings.Cut(s, "."); ok && id == "" {
		t, err := wire.ParseEntityType(typ)
		return wire.EntityName{Type: t}, err
	}
	return wire.ParseEntityName(s)
}

// Set adds an entity or replaces it. It takes copies. An entity without a key, or whose
// capabilities cannot be written to a file, is an error.
func (k *Keyring) Set(e Entity) error {
	if e.Key.IsZero() {
		return fmt.Errorf("%v: %w", e.Name, errNoKey)
	}
	again, err := parseSectionName(strings.TrimSpace(e.Name.String()))
	if err != nil || again != e.Name || strings.ContainsAny(e.Name.ID, "\r\n[]") {
		return fmt.Errorf("%w: entity name %q", errKeyring, e.Name)
	}
	for s, c := range e.Caps {
		if !slices.Equal(strings.Fields(s), []string{s}) || strings.Contains(s, "=") || strings.ContainsAny(c, "\r\n") {
			return fmt.Errorf("%w: capabilities of %v for %q", errKeyring, e.Name, s)
		}
	}
	e.Key, e.Caps = e.Key.Clone(), maps.Clone(e.Caps)
	k.put(e)
	return nil
}

func (k *Keyring) put(e Entity) {
	if k.entities == nil {
		k.entities = make(map[wire.EntityName]Entity)
	}
	k.entities[e.Name] = e
}

// Lookup implements [EntitySource].
func (k *Keyring) Lookup(name wire.EntityName) (Entity, bool) {
	e, ok := k.entities[name]
	return e, ok
}

// WriteTo writes the file form, with the keys, sorted by name. It implements
// [io.WriterTo].
func (k *Keyring) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	defer func() { clear(b.Bytes()) }()
	byName := func(a, b wire.EntityName) int {
		return cmp.Or(int(a.Type)-int(b.Type), strings.Compare(a.ID, b.ID))
	}
	for _, name := range slices.SortedFunc(maps.Keys(k.entities), byName) {
		e := k.entities[name]
		fmt.Fprintf(&b, "[%v]\n\tkey = %s\n", name, e.Key.base64())
		for _, s := range slices.Sorted(maps.Keys(e.Caps)) {
			fmt.Fprintf(&b, "\tcaps %s = \"%s\"\n", s, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(e.Caps[s]))
		}
	}
	n, err := w.Write(b.Bytes())
	return int64(n), err
}

// Wipe overwrites the keys and empties the keyring.
func (k *Keyring) Wipe() {
	for _, e := range k.entities {
		e.Key.Wipe()
	}
	k.entities = nil
}
