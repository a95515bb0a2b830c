package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/kv"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
)

// asProgram makes the test binary the program itself.
const asProgram = "RINGMSGR_RIVALS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const testKeys = 300

// kvSlice is short and ends when all open requests were answered.
var kvSlice = load.Slice{Warm: time.Millisecond, WarmMax: 20 * time.Second, Window: 10 * time.Millisecond, WindowMax: 20 * time.Second}

func openTestKV(t *testing.T, addr string, o load.KVOptions, ledger *kv.Ledger) *kvLoad {
	t.Helper()
	o.Addr = addr
	l, err := openKV(t.Context(), o, ledger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func kvOptions(put bool, conns, depth, size int) load.KVOptions {
	return load.KVOptions{Options: load.Options{Conns: conns, Depth: depth, Size: size}, Work: kv.Options{Put: put, Keys: testKeys}}
}

// The client checks every value that it reads.
// Matrix: BE-07
func TestEveryKeyValueRivalAnswersWhatWasPut(t *testing.T) {
	for _, r := range child.KVRivals() {
		s, err := startKV(r.Name, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if set := s.(child.Describer).Settings(); set[r.Name] == "" || set["gRPC"] == "" {
			t.Errorf("%s does not say how it is set: %v", r.Name, set)
		}
		for _, size := range []int{100, 64 << 10} {
			ledger := kv.NewLedger(testKeys)
			for _, put := range []bool{false, true} {
				for _, shape := range [][2]int{{1, 1}, {5, 7}} {
					l, open := openTestKV(t, s.Addr().String(), kvOptions(put, shape[0], shape[1], size), ledger), uint64(shape[0]*shape[1])
					for range 2 {
						res, err := l.Run(kvSlice)
						if err != nil {
							t.Fatalf("%s, %v: %v", r.Name, shape, err)
						}
						if !res.Steady || res.Total < 2*open || res.Latency.Count() < open || res.Bytes == 0 || res.PerReply == 0 {
							t.Errorf("%s, %v: %+v", r.Name, shape, res)
						}
					}
					if err := l.Verify(); err != nil {
						t.Errorf("%s, %v: %v", r.Name, shape, err)
					}
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

// Matrix: BE-07
func TestAKeyValueRivalSaysWhatIsMissing(t *testing.T) {
	for _, r := range child.KVRivals() {
		s, err := startKV(r.Name, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		l, err := connectKV(t.Context(), func() load.KVOptions {
			o := kvOptions(false, 1, 1, 100)
			o.Addr = s.Addr().String()
			return o
		}(), kv.NewLedger(testKeys))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Verify(); status.Code(err) != codes.NotFound && !strings.Contains(err.Error(), "there is no such key") {
			t.Errorf("%s: a key that was never put: %v", r.Name, err)
		}
		for _, wrong := range [][]byte{{}, {1}, {4, 0, 'k'}} {
			request, reply := message{mem.BufferSlice{mem.SliceBuffer(wrong)}}, message{}
			if err := l.conns[0].Invoke(t.Context(), getMethod, &request, &reply); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %q: %v", r.Name, wrong, err)
			}
		}
		l.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Whatever is acknowledged when the process is killed is there when it starts again.
// Matrix: BE-08
func TestADurablePutOfAKeyValueRivalSurvivesAKill(t *testing.T) {
	t.Setenv(asProgram, "1")
	spawner := proc.NewSpawner()
	defer spawner.Close()
	for _, r := range child.KVRivals() {
		dir, ledger := t.TempDir(), kv.NewLedger(testKeys)
		start := func() (*proc.Child, string) {
			var hello child.Hello
			c, err := spawner.Start(t.Context(), r.Name, os.Args[0], []string{child.Command, "kv-server", r.Name, dir}, io.Discard, &hello)
			if err != nil {
				t.Fatal(err)
			}
			return c, hello.Addr
		}
		c, addr := start()
		if _, err := openTestKV(t, addr, kvOptions(true, 4, 4, 1000), ledger).Run(kvSlice); err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		p, err := os.FindProcess(c.PID())
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Stop()
		c, addr = start()
		if err := openTestKV(t, addr, kvOptions(true, 4, 4, 1000), ledger).Verify(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		c.Stop()
	}
}

// Matrix: BE-07
func TestAKeyValueRivalWithOtherValuesIsFound(t *testing.T) {
	s, err := startKV("pebble", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ledger, older := kv.NewLedger(testKeys), kv.NewLedger(testKeys)
	openTestKV(t, s.Addr().String(), kvOptions(false, 1, 1, 100), older)
	if _, err := openTestKV(t, s.Addr().String(), kvOptions(true, 2, 2, 100), ledger).Run(kvSlice); err != nil {
		t.Fatal(err)
	}
	if err := openTestKV(t, s.Addr().String(), kvOptions(false, 1, 1, 100), older).Verify(); !errors.Is(err, load.ErrReply) || !errors.Is(err, kv.ErrValue) {
		t.Errorf("values that were put by others: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := startKV("leveldb", t.TempDir()); !errors.Is(err, errNoSuch) {
		t.Errorf("a rival that is not here: %v", err)
	}
	if _, err := openKV(t.Context(), load.KVOptions{}, ledger); err == nil {
		t.Error("no connections are no error")
	}
}
