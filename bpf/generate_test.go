package bpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// compiler is the one that made the committed objects.
const compiler = "Debian clang version 14.0.6"

// The objects must belong to the source. Where the compiler is missing, the
// recorded hash is all that can be compared.
func TestSourceIsTheOneThatWasCompiled(t *testing.T) {
	var want strings.Builder
	for _, name := range []string{"kernel.h", "steer.c"} {
		src, err := os.ReadFile(name)
		must(t, err)
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(src), name)
	}
	got, err := os.ReadFile("testdata/source.sha256")
	must(t, err)
	if string(got) != want.String() {
		t.Errorf("run go generate: recorded\n%sis\n%s", got, want.String())
	}
}

// What go generate would write must be what is committed, byte for byte.
func TestCommittedObjectsAreReproducible(t *testing.T) {
	version, err := exec.Command("clang-14", "--version").Output()
	if err == nil && !bytes.HasPrefix(version, []byte(compiler+"\n")) {
		err = fmt.Errorf("clang-14 is %q", bytes.SplitN(version, []byte("\n"), 2)[0])
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must have %s: %v", compiler, err)
		}
		t.Skipf("needs %s: %v", compiler, err)
	}
	dir := t.TempDir()
	args := generator(t)
	cmd := exec.Command(args[0], append([]string{"tool", args[2], "-output-dir", dir}, args[3:]...)...)
	cmd.Env = append(os.Environ(), "GOPACKAGE=bpf", "GOFILE=generate.go")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	for _, name := range []string{"steer_bpfel.o", "steer_bpfel.go", "steer_bpfeb.o", "steer_bpfeb.go"} {
		committed, err := os.ReadFile(name)
		must(t, err)
		fresh, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if !bytes.Equal(committed, fresh) {
			t.Errorf("%s is not what go generate writes", name)
		}
	}
}

// generator returns the words of the go:generate line that runs bpf2go.
func generator(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile("generate.go")
	must(t, err)
	for line := range strings.Lines(string(src)) {
		if cmd, ok := strings.CutPrefix(line, "//go:generate go tool bpf2go "); ok {
			return append([]string{"go", "tool", "bpf2go"}, strings.Fields(cmd)...)
		}
	}
	t.Fatal("generate.go does not run bpf2go")
	return nil
}

// The object for the other byte order cannot be loaded here, but it must hold
// the same programs and maps.
func TestBothByteOrdersHoldTheSame(t *testing.T) {
	var shapes []string
	for _, name := range []string{"steer_bpfel.o", "steer_bpfeb.o"} {
		spec, err := ebpf.LoadCollectionSpec(name)
		must(t, err)
		var b strings.Builder
		for _, m := range []string{steerMapListeners, steerMapByAddrPort, steerMapByAddr, steerMapPolicies, steerMapCounters} {
			s := spec.Maps[m]
			fmt.Fprintln(&b, m, s.Type, s.KeySize, s.ValueSize, s.MaxEntries)
		}
		for _, p := range []string{steerProgSteerMigrate, steerProgSteerPlain} {
			s := spec.Programs[p]
			fmt.Fprintln(&b, p, s.Type, s.AttachType, s.License)
		}
		fmt.Fprintln(&b, len(spec.Maps), len(spec.Programs))
		shapes = append(shapes, b.String())
	}
	if shapes[0] != shapes[1] {
		t.Errorf("little endian\n%sbig endian\n%s", shapes[0], shapes[1])
	}
}
