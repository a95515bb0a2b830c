package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// clusterConfig describes a cluster that a test starts.
type clusterConfig struct {
	auth  string        // none or cephx
	mode  string        // crc or secure: what the daemons prefer
	mons  int           // 0: one; more have no proxy before them
	osds  int           // memstore OSDs; with one or more there is a pool "data" of size 1, which is made when they are up
	later int           // OSDs that a test starts itself, by startOSD
	ttl   time.Duration // of tickets and of the secrets that they are made with; 0: the daemons' default
	// ciphers are the types of keys, from 20.2 on: aes (empty is the same), aes256k, or mixed:
	// both are allowed, monitors and services have aes256k, client.admin has aes.
	ciphers string
	// compress has OSDs compress towards OSDs, from release 17 on.
	compress bool
	// v1only has all daemons bind v1 addresses alone, and the monmap name no other.
	v1only bool
	// more are lines of the configuration.
	more string
}

func (c clusterConfig) String() string {
	if c.ciphers != "" {
		return fmt.Sprintf("auth=%s,ciphers=%s,mode=%s", c.auth, c.ciphers, c.mode)
	}
	return fmt.Sprintf("auth=%s,mode=%s", c.auth, c.mode)
}

// cluster is a running cluster. Its daemons end with the test that started them.
type cluster struct {
	clusterConfig
	t       *testing.T
	dir     string
	fsid    string
	ports   portRange    // of its OSDs
	monAddr wire.AddrVec // as the monmap has it: v2, v1, or the latter alone
	mons    []*daemon
	allMons []wire.AddrVec
	osdIDs  []string // UUIDs
	osds    []*daemon
}

// wanted says whether interop tests are asked for.
func wanted() bool { return os.Getenv("RINGMSGR_INTEROP") == "1" || os.Getenv("CI") == "true" }

// enabled skips where interop tests were not asked for, and fails where they
// were but cannot run.
func enabled(t *testing.T) {
	t.Helper()
	if !wanted() {
		t.Skip("needs real Ceph daemons: set RINGMSGR_INTEROP=1 to start some")
	}
	for _, p := range []string{"ceph", "ceph-mon", "ceph-osd", "ceph-mgr", "ceph-authtool", "monmaptool"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("interop tests are asked for, but a program is missing: %v (Debian: apt-get install ceph-mon ceph-osd ceph-mgr ceph-common)", err)
		}
	}
}

// version is that of the Ceph programs in the path: every test runs with each release.
var version = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("ceph-mon", "--version").Output()
	_, rest, _ := strings.Cut(string(out), "ceph version ")
	number, _, _ := strings.Cut(rest, " ")
	return number, err
})

// major is the number of the release: 16, 18 or 20.
func major(t *testing.T) (n int) {
	t.Helper()
	text, err := version()
	check(t, err)
	_, err = fmt.Sscanf(text, "%d.", &n)
	check(t, err)
	return n
}

// startCluster makes a monitor and OSDs, and returns when all of them answer.
func startCluster(t *testing.T, cfg clusterConfig) *cluster {
	t.Helper()
	c := &cluster{clusterConfig: cfg, t: t, dir: clusterDir(t), fsid: uuid(t)}
	for range max(cfg.mons, 1) {
		free := freePorts(2)
		addrs := wire.AddrVec{{Type: wire.AddrMsgr2, AddrPort: free[0]}, {Type: wire.AddrLegacy, AddrPort: free[1]}}
		if cfg.v1only {
			addrs = addrs[1:]
		}
		c.allMons = append(c.allMons, addrs)
	}
	c.monAddr = c.allMons[0]
	if cfg.osds > 0 {
		c.ports = takePorts((cfg.osds+cfg.later)*portsPerOSD + sparePorts)
	}
	check(t, os.WriteFile(c.file("ceph.conf"), []byte(c.conf()), 0o644))
	service, admin, allowed := c.keyTypes()
	runTool(t, "ceph-authtool", append(service, "--create-keyring", c.file("keyring"), "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")...)
	runTool(t, "ceph-authtool", append(admin, c.file("keyring"), "--gen-key", "-n", "client.admin",
		"--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")...)
	var commands []string
	for i := range cfg.osds + cfg.later {
		c.osdIDs = append(c.osdIDs, uuid(t))
		commands = append(commands, fmt.Sprintf("osd new %s %d", c.osdIDs[i], i))
		runTool(t, "ceph-authtool", append(slices.Clone(service), c.file("keyring"), "--gen-key", "-n", osdName(i),
			"--cap", "mon", "allow profile osd", "--cap", "osd", "allow *")...)
	}
	for i, addr := range c.allMons {
		allowed = append(allowed, "--addv", monID(i), addr.String())
	}
	runTool(t, "monmaptool", append(allowed, "--create", "--fsid", c.fsid, c.file("monmap"))...)
	for i := range c.allMons {
		common := []string{"--conf", c.file("ceph.conf"), "--id", monID(i)}
		runTool(t, "ceph-mon", append(common, "--mkfs", "--monmap", c.file("monmap"), "--keyring", c.file("keyring"))...)
		d := startDaemon(t, c.dir, "mon."+monID(i), append([]string{"ceph-mon", "--foreground"}, common...)...)
		c.mons = append(c.mons, d)
	}
	c.awaitQuorum(len(c.allMons))

	if cfg.osds > 0 {
		c.cephAll(commands)
	}
	for i := range cfg.osds {
		c.startOSD(i)
	}
	if cfg.osds > 0 {
		c.cephAll([]string{"osd pool create data 8 8", "osd pool application enable data rados"})
		c.settle(8)
	}
	return c
}

// settle waits until all OSDs together have so many copies of groups, and has a map come behind them. An OSD that makes a group at the
// newest map, as it may where the group moves to it, has a lease of no length for reads of the group until the next map comes
// (src/osd/PeeringState.cc sets the length where a map comes), and holds operations on the group back from the first one on: 20.2 until
// that map, 16.2 for ever in a pool without replicas. Such a group is active+clean or active+clean+laggy, so a wait for active+clean does not help.
func (c *cluster) settle(groups int) {
	c.t.Helper()
	made := 0
	if !await(2*patience, func() bool {
		made = 0
		for _, d := range c.osds {
			var s struct {
				Groups int `json:"num_pgs"`
			}
			check(c.t, d.command(map[string]any{"prefix": "status", "format": "json"}, &s))
			made += s.Groups
		}
		return made == groups
	}) {
		c.t.Fatalf("there are %d groups, not %d", made, groups)
	}
	c.ceph("osd", "set", "noscrub") // makes a map, also where it is set already; no test needs a scrub
}

func monID(i int) string { return string(rune('a' + i)) }

func osdName(i int) string { return "osd." + strconv.Itoa(i) }

// awaitQuorum waits until mon.a leads so many monitors.
func (c *cluster) awaitQuorum(n int) {
	c.t.Helper()
	type monStatus struct {
		State  string
		Quorum []int
	}
	leads := func(s monStatus) bool { return s.State == "leader" && len(s.Quorum) == n }
	check(c.t, awaitAnswer(c.mons[0], "mon_status", patience, leads))
}

// keyTypes are the arguments that choose the types of keys: of the services' keys, of
// client.admin's, and in the monmap. Releases before 20.2 have one type and no choice.
func (c *cluster) keyTypes() (service, admin, allowed []string) {
	if major(c.t) < 20 {
		return nil, nil, nil
	}
	both := func(preferred string) []string {
		return []string{"--auth-service-cipher", preferred, "--auth-allowed-ciphers", "aes,aes256k", "--auth-preferred-cipher", preferred}
	}
	aes := []string{"--key-type", "aes"}
	switch c.ciphers {
	case "aes256k":
		return nil, nil, nil
	case "mixed":
		return nil, aes, both("aes256k")
	}
	return aes, aes, both("aes")
}

// startManager starts a manager without modules. It counts the objects of the pools.
func (c *cluster) startManager() {
	home := c.file("mgr.x")
	key := filepath.Join(home, "keyring")
	check(c.t, os.Mkdir(home, 0o755))
	check(c.t, os.WriteFile(key, c.ceph("auth", "get-or-create", "mgr.x", "mon", "allow profile mgr", "osd", "allow *"), 0o600))
	startDaemon(c.t, c.dir, "mgr.x", "ceph-mgr", "--foreground", "--conf", c.file("ceph.conf"), "--id", "x", "--keyring", key,
		"--mgr-data", home, "--mgr-module-path", home)
}

// startOSD starts an OSD, which the monitors know by its UUID and its key.
func (c *cluster) startOSD(i int) {
	name := osdName(i)
	check(c.t, os.Mkdir(c.file(name), 0o755))
	common := []string{"--conf", c.file("ceph.conf"), "--id", strconv.Itoa(i), "--keyring", c.file("keyring")}
	runTool(c.t, "ceph-osd", append(common, "--mkfs", "--osd-uuid", c.osdIDs[i])...)
	d := startDaemon(c.t, c.dir, name, append([]string{"ceph-osd", "--foreground"}, common...)...)
	d.awaitOSD(c.t, func(s osdStatus) bool { return s.State == "active" })
	c.osds = append(c.osds, d)
}

// conf is the configuration of all daemons and tools of the cluster.
func (c *cluster) conf() string {
	var b strings.Builder
	set := func(key, value string) { fmt.Fprintf(&b, "%s = %s\n", key, value) }
	b.WriteString("[global]\n")
	set("fsid", c.fsid)
	var hosts []string
	for _, a := range c.allMons {
		hosts = append(hosts, a.String())
	}
	set("mon host", strings.Join(hosts, ","))
	for _, who := range []string{"cluster", "service", "client"} {
		set("auth "+who+" required", c.auth)
		set("ms "+who+" mode", c.modes())
		set("ms mon "+who+" mode", c.modes())
	}
	set("auth allow insecure global id reclaim", "false")
	set("ms bind ipv6", "false")
	set("ms bind msgr2", strconv.FormatBool(!c.v1only))
	set("public addr", "127.0.0.1")
	if c.ports.last > 0 {
		set("ms bind port min", strconv.Itoa(int(c.ports.first)))
		set("ms bind port max", strconv.Itoa(int(c.ports.last)))
	}
	set("cluster addr", "127.0.0.1")
	for key, file := range map[string]string{
		"run dir": "", "crash dir": "", "keyring": "keyring", "mon data": "mon.$id",
		"log file": "$name.log", "admin socket": "$name.asok", "pid file": "$name.pid", "osd data": "$name",
	} {
		set(key, c.file(file))
	}
	if c.ttl > 0 {
		seconds := strconv.Itoa(int(c.ttl / time.Second))
		set("auth service ticket ttl", seconds)
		set("auth mon ticket ttl", seconds)
	}
	if c.compress && major(c.t) >= 17 {
		set("ms osd compress mode", "force")
		set("ms osd compression algorithm", "snappy zlib zstd lz4")
		set("ms compress secure", "true")
		set("osd client message size cap", "0") // an OSD of 18.2.7 aborts on a compressed request with another one
	}
	if major(c.t) >= 20 && c.ciphers != "aes256k" {
		set("mon auth allow insecure key", "true")
	}
	// A monitor refuses a pool whose rule it has not tried within five seconds.
	set("mon osd crush smoke test", "false")
	// Nobody misses a manager.
	set("mon mgr mkfs grace", "86400")
	set("mon mgr inactive grace", "86400")
	set("log to stderr", "false")
	set("debug ms", "20")
	// Pools have one copy, on a disk in memory.
	set("osd objectstore", "memstore")
	set("memstore device bytes", "1073741824")
	set("osd pool default size", "1")
	set("osd pool default min size", "1")
	set("osd crush chooseleaf type", "0")
	set("mon allow pool size one", "true")
	set("mon warn on pool no redundancy", "false")
	set("mon config key max entry size", "16777216")
	set("mon data avail warn", "1")
	set("mon data avail crit", "0")
	// The classes live in a package that is not needed otherwise.
	set("osd class load list", "*")
	b.WriteString(c.more)
	b.WriteString("[client]\n")
	set("debug ms", "0")
	set("log file", "")
	set("admin socket", "")
	return b.String()
}

// modes lists the connection modes, the preferred one first.
func (c *cluster) modes() string {
	if c.mode == "secure" {
		return "secure crc"
	}
	return "crc secure"
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// daemons are all of the cluster's.
func (c *cluster) daemons() []*daemon { return slices.Concat(c.mons, c.osds) }

// osdAddr is the v2 address of an OSD for its clients, with the nonce of its
// process.
func (c *cluster) osdAddr(id int) wire.Addr { return c.osdAddrOf(id, "public_addrs", "v2") }

// clusterAddr is the v2 address of an OSD for other OSDs.
func (c *cluster) clusterAddr(id int) wire.Addr { return c.osdAddrOf(id, "cluster_addrs", "v2") }

func (c *cluster) osdAddrOf(id int, kind, protocol string) wire.Addr {
	c.t.Helper()
	var dump struct{ OSDs []map[string]json.RawMessage }
	check(c.t, json.Unmarshal(c.ceph("osd", "dump", "--format", "json"), &dump))
	for _, o := range dump.OSDs {
		var n int
		var addrs struct {
			Vec []struct {
				Type, Addr string
				Nonce      uint32
			} `json:"addrvec"`
		}
		check(c.t, errors.Join(json.Unmarshal(o["osd"], &n), json.Unmarshal(o[kind], &addrs)))
		for _, a := range addrs.Vec {
			if n == id && a.Type == protocol {
				addr, err := wire.ParseAddr(fmt.Sprintf("%s:%s/%d", protocol, a.Addr, a.Nonce))
				check(c.t, err)
				return addr
			}
		}
	}
	c.t.Fatalf("osd.%d has no %s address: %+v", id, protocol, dump)
	return wire.Addr{}
}

// ceph runs the real command line tool against the cluster.
func (c *cluster) ceph(args ...string) []byte {
	c.t.Helper()
	return c.cephReads("", args...)
}

// cephAll has one run of the tool carry out commands, one a line: a run takes half a second of a CPU.
func (c *cluster) cephAll(commands []string) {
	c.t.Helper()
	c.cephReads(strings.Join(commands, "\n") + "\n")
}

// cephReads is ceph with an input. By msgr1 the tool may send its first command before it
// has the monmap, and then names the cluster 0: the monitor refuses that, and the tool is
// run again.
func (c *cluster) cephReads(input string, args ...string) []byte {
	c.t.Helper()
	args = append([]string{"--conf", c.file("ceph.conf"), "--connect-timeout", "60"}, args...)
	for tries := 1; ; tries++ {
		out, err := tryToolWith(c.t, input, "ceph", args...)
		if err == nil {
			return out
		}
		refused := strings.Contains(err.Error(), "problem getting command descriptions") || strings.Contains(err.Error(), "wrong fsid")
		if tries == 10 || !refused {
			c.t.Fatal(err)
		}
		c.t.Logf("run again: %v", err)
	}
}

func (c *cluster) rados(args ...string) []byte {
	c.t.Helper()
	return runTool(c.t, "rados", append([]string{"--conf", c.file("ceph.conf"), "-p", "data"}, args...)...)
}

// runTool runs a tool and returns what it writes to its standard output.
func runTool(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	out, err := tryTool(t, program, args...)
	check(t, err)
	return out
}

// tryTool is runTool for a tool that may fail.
func tryTool(t *testing.T, program string, args ...string) ([]byte, error) {
	t.Helper()
	return tryToolWith(t, "", program, args...)
}

// tryToolWith is tryTool for a tool that reads input. What reads commands ends well even if
// one of them fails, but says so.
func tryToolWith(t *testing.T, input, program string, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = cephEnv()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if err == nil && input != "" && strings.Contains(stderr.String(), "Error ") {
		err = errors.New("a command failed")
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s%s", cmd, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// crashed says whether err is that of a tool which a memory error ended.
func crashed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGSEGV
}

// clusterDir is a directory for a cluster. It is not t.TempDir: the path of a
// socket in it must fit 107 bytes.
func clusterDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringmsgr-ceph-")
	check(t, err)
	t.Cleanup(func() {
		if os.Getenv("RINGMSGR_INTEROP_KEEP") == "1" {
			t.Logf("kept %s", dir)
			return
		}
		check(t, os.RemoveAll(dir))
	})
	return dir
}

func uuid(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	check(t, err)
	return strings.TrimSpace(string(b))
}
