package bpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
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
	if out, err := exec.Command("sh", "compile.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"steer_bpfel.o", "steer_bpfeb.o"} {
		committed, err := os.ReadFile(name)
		must(t, err)
		fresh, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if !bytes.Equal(committed, fresh) {
			t.Errorf("%s is not what go generate writes", name)
		}
	}
}

// The types of this package must be those of the program: the same fields, in the same
// places.
func TestStructuresAreThoseOfTheProgram(t *testing.T) {
	spec, err := loadSteer()
	must(t, err)
	for _, one := range []struct {
		c  btf.Type
		of reflect.Type
	}{
		{spec.Maps[steerMapByAddr].Key, reflect.TypeFor[steerAddr]()},
		{spec.Maps[steerMapByAddrPort].Key, reflect.TypeFor[steerAddrPort]()},
		{spec.Maps[steerMapPolicies].Value, reflect.TypeFor[steerPolicy]()},
		{spec.Maps[steerMapCounters].Value, reflect.TypeFor[steerCounts]()},
	} {
		c := one.c.(*btf.Struct)
		if int(c.Size) != int(one.of.Size()) || len(c.Members) != one.of.NumField() {
			t.Errorf("%s: %d bytes and %d fields in C, %d and %d in Go", c.Name, c.Size, len(c.Members), one.of.Size(), one.of.NumField())
			continue
		}
		for i, m := range c.Members {
			size, err := btf.Sizeof(m.Type)
			must(t, err)
			f := one.of.Field(i)
			if !strings.EqualFold(m.Name, f.Name) || uintptr(m.Offset.Bytes()) != f.Offset || uintptr(size) != f.Type.Size() {
				t.Errorf("%s: %s of %d bytes at %d in C, %s of %d at %d in Go", c.Name, m.Name, size, m.Offset.Bytes(), f.Name, f.Type.Size(), f.Offset)
			}
		}
	}
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
