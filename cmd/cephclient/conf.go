package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// settings are the settings of Ceph's own tools: the words of CEPH_ARGS, and the sections of
// ceph.conf. Words of a name are joined by underscores.
type settings struct {
	args     map[string]string
	sections map[string]map[string]string
	file     string // the ceph.conf; empty: there is none
	cluster  string // its name
	name     wire.EntityName
}

// short are the letters of options in CEPH_ARGS.
var short = map[string]string{"c": "conf", "i": "id", "k": "keyring", "m": "mon_host", "n": "name", "user": "id"}

// argument is an option in CEPH_ARGS, with its value after = or in the next word.
var argument = regexp.MustCompile(`(?:^|\s)-+([^\s=]+)(?:=(\S*)|\s+([^\s-]\S*))?`)

// readArgs reads CEPH_ARGS. It ignores unknown options.
func readArgs(text string) map[string]string {
	args := map[string]string{}
	for _, m := range argument.FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(m[1], "-", "_")
		args[cmp.Or(short[name], name)] = m[2] + m[3]
	}
	return args
}

// maxConf bounds a ceph.conf, and a keyfile, in bytes.
const maxConf = 1 << 20

// readConf finds and reads a ceph.conf: the first there is of a list, which is the usual one if it is empty.
func (s *settings) readConf(ctx context.Context, list, home string) (err error) {
	where := split(list)
	s.cluster = cmp.Or(s.args["cluster"], "ceph")
	if len(where) == 0 {
		name := s.cluster + ".conf"
		where = []string{"/etc/ceph/" + name, filepath.Join(home, ".ceph", name), name}
	}
	if s.file = first(where); s.file == "" && list == "" {
		return nil
	}
	if s.file = cmp.Or(s.file, list); list != "" && s.args["cluster"] == "" {
		s.cluster = strings.TrimSuffix(filepath.Base(s.file), ".conf")
	}
	s.sections, err = scope.File(ctx, "--conf", s.file, parseConf)
	return err
}

var element = regexp.MustCompile(`([^\s,;\[]|\[[^\]]*\]?)+`)

// split cuts a list of a ceph.conf into its elements. Brackets enclose one element.
func split(list string) []string {
	return element.FindAllString(list, -1)
}

// first is the first file that there is, or may be; empty: there is none.
func first(files []string) string {
	for _, name := range files {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			return name
		}
	}
	return ""
}

// The lines of a ceph.conf. A comment may end each line; after a backslash, and in quotes, no
// comment begins.
var (
	sectionLine = regexp.MustCompile(`^\[([^\]]*)\]\s*([;#].*)?$`)
	settingLine = regexp.MustCompile(`^([^=;#\[\]]+?)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:\\.|[^\\;#])*?)\s*([;#].*)?$`)
	escaped     = regexp.MustCompile(`\\(.)`)
)

// parseConf reads a ceph.conf. Settings before the first section belong to all
// entities.
func parseConf(r io.Reader) (map[string]map[string]string, error) {
	whole, err := io.ReadAll(io.LimitReader(r, maxConf))
	if err != nil {
		return nil, err
	}
	section := map[string]string{}
	all := map[string]map[string]string{"global": section}
	text := strings.NewReplacer("\\\r\n", "", "\\\n", "").Replace(string(whole)) // lines that go on
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if m := sectionLine.FindStringSubmatch(line); m != nil {
			if section = all[m[1]]; section == nil {
				section = map[string]string{}
				all[m[1]] = section
			}
			continue
		}
		m := settingLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%q is neither a section nor a setting", line)
		}
		value := m[2]
		if n := len(value) - 1; n > 0 && (value[0] == '"' || value[0] == '\'') && value[n] == value[0] {
			value = value[1:n]
		}
		section[strings.Join(strings.Fields(m[1]), "_")] = escaped.ReplaceAllString(value, "$1")
	}
	return all, nil
}

// get finds a setting: in CEPH_ARGS, or in the section of the entity, of its type, or of all.
func (s *settings) get(option string) string { return s.expand(s.raw(option)) }

// expand fills in the variables of a value. One that is not known stays.
func (s *settings) expand(value string) string {
	known := map[string]string{"cluster": s.cluster, "type": s.name.Type.String(), "id": s.name.ID, "name": s.name.String()}
	return os.Expand(value, func(name string) string {
		return cmp.Or(known[name], s.raw(name), "$"+name)
	})
}

func (s *settings) raw(option string) string {
	if value := s.args[option]; value != "" {
		return value
	}
	for _, section := range []string{s.name.String(), s.name.Type.String()} {
		if value, ok := s.sections[section][option]; ok {
			return value
		}
	}
	return s.sections["global"][option]
}

// lookup is that of net.Resolver.
type lookup func(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)

// monitors are the addresses of mon_host. Without it the DNS has them, the preferred ones first, as a
// service whose name is mon_dns_srv_name, in a domain that may follow after _, or in those that the
// machine searches. what is the setting or the name that was asked for.
func (s *settings) monitors(ctx context.Context, srv lookup) (list []string, what string, err error) {
	if list, what = split(s.get("mon_host")), "mon_host of "+s.file; len(list) == 0 {
		service, domain, _ := strings.Cut(cmp.Or(s.get("mon_dns_srv_name"), "ceph-mon"), "_")
		what = strings.TrimSuffix("_"+service+"._tcp."+domain, ".")
		var records []*net.SRV
		_, records, err = srv(ctx, "", "", what)
		for _, r := range records {
			list = append(list, strings.TrimSuffix(net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port))), ":0"))
		}
	}
	for i, text := range list { // without a type the standard port of msgr1 tells it
		if strings.HasSuffix(text, ":6789") && !strings.HasPrefix(text, "v1:") && !strings.HasPrefix(text, "v2:") {
			list[i] = "v1:" + text
		}
	}
	return list, what, err
}

// usualKeyrings is where keys are kept.
const usualKeyrings = "/etc/ceph/$cluster.$name.keyring /etc/ceph/$cluster.keyring /etc/ceph/keyring /etc/ceph/keyring.bin"

// key finds the entity's key, and says in which file, or in which there is none. The zero Key stands for method none.
func (s *settings) key(ctx context.Context) (key cephx.Key, where string, err error) {
	methods := cmp.Or(s.get("auth_supported"), s.get("auth_client_required"), "cephx")
	if !slices.Contains(split(methods), "cephx") {
		return key, "", nil
	}
	text, where := s.get("key"), s.get("keyfile")
	if text == "" && where != "" {
		whole, err := scope.File(ctx, "keyfile", where, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxConf)) })
		if err != nil {
			return key, where, err
		}
		text = strings.TrimSpace(string(whole))
	}
	if text != "" {
		key, err = cephx.ParseKey(text)
		return key, cmp.Or(where, "option key"), err
	}
	files := split(s.expand(cmp.Or(s.raw("keyring"), usualKeyrings)))
	if where = first(files); where == "" {
		return key, strings.Join(files, ", "), nil
	}
	key, err = readKey(ctx, where, s.name)
	return key, where, err
}

func readKey(ctx context.Context, file string, name wire.EntityName) (cephx.Key, error) {
	ring, own, err := scope.Keyring(ctx, file, name)
	if err != nil {
		return cephx.Key{}, err
	}
	defer ring.Wipe()
	return own.Clone(), nil
}
