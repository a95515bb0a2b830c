package kv

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// opened is a store that is open until the test ends, or it is closed.
func opened(t *testing.T, dir string, each bool) *Store {
	t.Helper()
	s, err := Open(dir, each)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *Store, key, value string) {
	t.Helper()
	to, err := s.Put([]byte(key), []byte(value))
	if err == nil {
		err = s.Commit(to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func get(s *Store, key string) (string, error) {
	value, err := s.Get([]byte(key), make([]byte, recordHead+MaxKey+MaxValue))
	return string(value), err
}

func TestAStoreHasWhatWasPutAndHasItAgainWhenItStarts(t *testing.T) {
	for _, each := range []bool{false, true} {
		dir := t.TempDir()
		s := opened(t, dir, each)
		if _, err := get(s, "a"); !errors.Is(err, errNotFound) {
			t.Errorf("a key that was never put: %v", err)
		}
		large := string(bytes.Repeat([]byte("x"), MaxValue))
		put(t, s, "a", "1")
		put(t, s, "b", large)
		put(t, s, "a", "2")
		for range 2 {
			for key, want := range map[string]string{"a": "2", "b": large} {
				if got, err := get(s, key); err != nil || got != want {
					t.Errorf("%s: %d bytes, %v", key, len(got), err)
				}
			}
			s = opened(t, dir, each)
		}
		for _, wrong := range []struct{ key, value string }{{"", "x"}, {"k", ""}, {"k", large + "x"}, {string(make([]byte, MaxKey+1)), "x"}} {
			if _, err := s.Put([]byte(wrong.key), []byte(wrong.value)); err == nil {
				t.Errorf("a key of %d bytes and a value of %d are stored", len(wrong.key), len(wrong.value))
			}
		}
	}
}

// Matrix: BE-08
func TestWhatIsNotCommittedIsNotSeen(t *testing.T) {
	s := opened(t, t.TempDir(), false)
	put(t, s, "a", "old")
	to, err := s.Put([]byte("a"), []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := get(s, "a"); got != "old" || err != nil {
		t.Errorf("%q, %v before the sync", got, err)
	}
	if err := s.Commit(to); err != nil {
		t.Fatal(err)
	}
	if got, err := get(s, "a"); got != "new" || err != nil {
		t.Errorf("%q, %v after it", got, err)
	}
}

// Matrix: BE-08
func TestATailThatIsNotWholeIsCutOff(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, true)
	put(t, s, "a", "kept")
	whole := s.end
	put(t, s, "b", "torn")
	path := filepath.Join(dir, filepath.Base(s.file.Name()))
	for cut := s.end - 1; cut > whole; cut-- {
		if err := os.Truncate(path, cut); err != nil {
			t.Fatal(err)
		}
		again := opened(t, dir, true)
		if got, err := get(again, "a"); got != "kept" || err != nil || again.end != whole {
			t.Fatalf("cut at %d: %q, %v, the log ends at %d", cut, got, err, again.end)
		}
		if _, err := get(again, "b"); !errors.Is(err, errNotFound) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		put(t, again, "b", "torn")
	}
}

func TestAValueThatIsDamagedIsNotReturned(t *testing.T) {
	s := opened(t, t.TempDir(), true)
	put(t, s, "a", "value")
	if _, err := s.file.WriteAt([]byte("V"), s.end-5); err != nil {
		t.Fatal(err)
	}
	if got, err := get(s, "a"); !errors.Is(err, errDamaged) {
		t.Errorf("%q, %v", got, err)
	}
}

// A sync that fails says nothing about what it was to cover, so nothing is acknowledged any
// more.
// Matrix: BE-08
func TestAStoreWhoseDiskFailsAcknowledgesNothing(t *testing.T) {
	for _, each := range []bool{false, true} {
		s := opened(t, t.TempDir(), each)
		to, err := s.Put([]byte("a"), []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		s.file.Close()
		if !each {
			if err := s.Commit(to); err == nil {
				t.Error("a sync of a closed file is no error")
			}
		}
		if _, err := s.Put([]byte("a"), []byte("2")); err == nil {
			t.Error("a put after it is no error")
		}
	}
}

func TestManyWhoWaitShareSyncs(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, false)
	var wait sync.WaitGroup
	for i := range 32 {
		wait.Go(func() {
			for j := range 20 {
				to, err := s.Put([]byte{byte(i + 1)}, []byte{byte(j + 1)})
				if err == nil {
					err = s.Commit(to)
				}
				if got, e := get(s, string([]byte{byte(i + 1)})); err != nil || e != nil || got != string([]byte{byte(j + 1)}) {
					t.Errorf("%d of %d: %q, %v, %v", j, i, got, err, e)
				}
			}
		})
	}
	wait.Wait()
	again := opened(t, dir, false)
	for i := range 32 {
		if got, err := get(again, string([]byte{byte(i + 1)})); err != nil || got != string([]byte{20}) {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
}

// Matrix: BE-07
func TestAValueIsKnownByItsKeyAndGeneration(t *testing.T) {
	for _, size := range []int{1, 15, 16, 100, 4096} {
		v := NewValues(size)
		p := make([]byte, size)
		v.Fill(p, 7, 1)
		if err := v.Check(p, 7, 1); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if size > 8 {
			if err := v.Check(p, 6, 1); !errors.Is(err, ErrValue) {
				t.Errorf("%d bytes of another key: %v", size, err)
			}
		}
		if err := v.Check(p, 7, 2); !errors.Is(err, ErrValue) {
			t.Errorf("%d bytes of another generation: %v", size, err)
		}
		if err := v.Check(p[1:], 7, 1); !errors.Is(err, ErrValue) {
			t.Errorf("a byte too few of %d: %v", size, err)
		}
		for i := range p {
			p[i] ^= 1
			if err := v.Check(p, 7, 1); !errors.Is(err, ErrValue) {
				t.Fatalf("byte %d of %d is another: %v", i, size, err)
			}
			p[i] ^= 1
		}
	}
}

func TestEachSlotHasKeysOfItsOwn(t *testing.T) {
	const keys, slots = 10, 4
	ledger := NewLedger(keys)
	w := NewWork(Options{Put: true, Keys: keys}, 100, slots, ledger)
	w.FillRest()
	for n := 0; ; n++ {
		turn, ok := w.Next(0)
		if !ok {
			if n != keys {
				t.Errorf("%d keys were put", n)
			}
			break
		}
		if err := w.Done(turn, nil); err != nil || !turn.Put || turn.Generation != 1 {
			t.Fatalf("%+v, %v", turn, err)
		}
	}
	if w.FillRest(); len(w.queue) > 0 || !ledger.Whole() {
		t.Error("what was put is to be put again")
	}
	w.Measure()
	put := map[int64]uint64{}
	for i := range 1000 {
		turn, ok := w.Next(i % slots)
		if !ok || int(turn.Key)%slots != i%slots || turn.Key < 0 || turn.Key >= keys {
			t.Fatalf("slot %d has key %d, %v", i%slots, turn.Key, ok)
		}
		put[turn.Key] = turn.Generation
		if err := w.Done(turn, []byte("x")); !errors.Is(err, ErrValue) {
			t.Fatalf("a put is answered with data: %v", err)
		}
		if err := w.Done(turn, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !w.ReadBack() || len(put) != keys {
		t.Errorf("%d of %d keys were put", len(put), keys)
	}
	for n := 0; ; n++ {
		turn, ok := w.Next(0)
		if !ok {
			if n != verifyEach {
				t.Errorf("%d keys are read back", n)
			}
			return
		}
		value := make([]byte, 100)
		w.Fill(value, turn.Key, put[turn.Key])
		if err := w.Done(turn, value); err != nil || turn.Put {
			t.Fatalf("%+v, %v", turn, err)
		}
		w.Fill(value, turn.Key, put[turn.Key]-1)
		if err := w.Done(turn, value); !errors.Is(err, ErrValue) {
			t.Fatalf("the value before: %v", err)
		}
	}
}
