package loop

import (
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/uring"
)

// cachedBed is a fileBed whose file goes through the page cache, with another one beside it.
type cachedBed struct {
	*fileBed
	other *File
	ended []*File // of each request, in the order of their ends
}

func newCachedBed(t *testing.T, opt FileOptions, change func(*Config)) *cachedBed {
	b := &cachedBed{fileBed: newFileBed(t, opt, change)}
	b.other = b.open("/other", opt)
	must(t, b.f.WriteAt(&newRequest().FileOp, make([]byte, 1<<20), 0, Written))
	must(t, b.other.WriteAt(&newRequest().FileOp, make([]byte, 1<<20), 0, Written))
	b.answer(uring.KindWrite, 0)
	return b
}

// reads asks for n pieces of so many bytes.
func (b *cachedBed) reads(f *File, n, size int) {
	b.t.Helper()
	for range n {
		op := &FileOp{Done: func(*Core, *FileOp) { b.ended = append(b.ended, f) }}
		must(b.t, f.ReadBuffer(op, size, 0))
	}
}

// turn is one turn of the core, and returns how many reads the driver has then.
func (b *cachedBed) turn() int {
	b.t.Helper()
	must(b.t, b.c.turn(false))
	return len(b.parked(uring.KindRead))
}

// A read that is larger than what a turn asks for is asked for all the same. Files that have more
// than one call begins take turns, whether the page cache has a part or not.
// Matrix: ST-12
func TestFilesTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		messages      uint64 // that need no file
		each, size    int    // reads of each file
		of            int    // reads of a turn
		first, second []int  // turns in which the reads of the first and of the second file end
	}{
		"at the page cache":                     {0, 3, 2 * turnReads, 1, []int{0, 1, 3}, []int{2, 4, 5}},
		"while messages come that need no file": {100, 6, 1, 2, []int{0, 0, 1, 1, 3, 3}, []int{2, 2, 4, 4, 5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newCachedBed(t, FileOptions{}, func(cfg *Config) { cfg.fileTurn = 2 })
			b.c.stats.FramesIn += c.messages
			b.after(mixPeriod)
			b.reads(b.f, c.each, c.size)
			b.reads(b.other, c.each, c.size)
			turns := map[*File][]int{}
			for turn := range 6 {
				reads := b.parked(uring.KindRead)
				if len(reads) != c.of {
					t.Fatalf("the driver has %d reads, want %d", len(reads), c.of)
				}
				for _, r := range reads {
					b.d.Answer(r)
				}
				b.turn()
				for ; len(b.ended) > 0; b.ended = b.ended[1:] {
					turns[b.ended[0]] = append(turns[b.ended[0]], turn)
				}
			}
			if !slices.Equal(turns[b.f], c.first) || !slices.Equal(turns[b.other], c.second) {
				t.Errorf("the reads of two files end in the turns %v and %v", turns[b.f], turns[b.other])
			}
		})
	}
}

// What waits for a turn alone is not too much; what would wait for the driver, too, is.
func TestAFileIsFullWhenItsReadsWaitForMoreThanATurn(t *testing.T) {
	const size = turnReads / 2
	for name, one := range map[string]struct {
		ops, core, fit int
	}{
		"of the file": {8, 0, 7},
		"of the core": {0, 8, 8}, // which other files share
	} {
		t.Run(name, func(t *testing.T) {
			b, room := newCachedBed(t, FileOptions{Ops: one.ops}, func(cfg *Config) { cfg.FileOps = one.core }), 0
			b.f.AwaitRoom(onRoom(func() { room++ }))
			b.reads(b.f, one.fit, size)
			if b.f.Full() {
				t.Error("full with what the driver takes")
			}
			b.reads(b.f, 1, size)
			if !b.f.Full() {
				t.Error("not full with one more")
			}
			b.reads(b.f, 8-one.fit, size)
			for range 5 {
				b.turn()
			}
			if n := len(b.parked(uring.KindRead)); n != 8 || !b.f.Full() || room != 0 {
				t.Errorf("the driver has %d, full: %t, room: %d", n, b.f.Full(), room)
			}
			b.answer(uring.KindRead, 0)
			b.turn()
			b.answer(uring.KindRead, 0)
			if len(b.ended) != 9 || room != 1 || b.f.Full() {
				t.Errorf("%d of 9 have ended, full: %t, told of room %d times", len(b.ended), b.f.Full(), room)
			}
			if b.reads(b.f, 3, size); b.f.Full() {
				t.Error("full again with a read that waits for a turn")
			}
		})
	}
}

// mixBed is a fileBed with direct I/O whose core has received messages over a period.
type mixBed struct{ *fileBed }

func newMixBed(t *testing.T, turn int) mixBed {
	return mixBed{newFileBed(t, FileOptions{Direct: uring.Direct}, func(cfg *Config) { cfg.fileTurn = turn })}
}

// period lets a period pass, in which so many messages come and so many of them need a file.
func (b mixBed) period(messages, files int) {
	b.t.Helper()
	for range files {
		b.read(0)
	}
	b.answer(uring.KindRead, 0)
	b.c.stats.FramesIn += uint64(messages)
	b.after(mixPeriod)
}

// begun asks for n requests and returns how many the driver has then, turn by turn.
func (b mixBed) begun(n int) (counts []int) {
	b.t.Helper()
	for i := range n {
		if i%2 == 0 {
			b.read(0)
		} else {
			b.write(Written, 0)
		}
	}
	for {
		counts = append(counts, len(b.parked(uring.KindRead))+len(b.parked(uring.KindWrite)))
		if !b.c.busy() {
			break
		}
		must(b.t, b.c.turn(false))
	}
	b.answer(uring.KindRead, 0)
	b.answer(uring.KindWrite, 0)
	return counts
}

// Direct I/O passes no byte through the processor's cache.
// Matrix: ST-12
func TestReadsPastThePageCacheAreNotBoundedByTurns(t *testing.T) {
	b := newFileBed(t, FileOptions{Direct: uring.Direct}, nil)
	for range 3 {
		must(t, b.f.ReadBuffer(&newRequest().FileOp, turnReads, 0))
	}
	if n := len(b.parked(uring.KindRead)); n != 3 {
		t.Errorf("the driver has %d of 3 reads", n)
	}
}

// Matrix: ST-12
func TestACallBeginsFewRequestsWhileMessagesComeThatNeedNoFile(t *testing.T) {
	for name, c := range map[string]struct {
		turn, messages, files int
		want                  []int
	}{
		"no messages":                 {0, 0, 0, []int{20}},
		"all need one":                {0, 100, 100, []int{20}},
		"hardly any needs none":       {0, 106, 100, []int{20}},
		"some need none":              {0, 107, 100, []int{8, 16, 20}},
		"none needs one":              {0, 1000, 0, []int{8, 16, 20}},
		"none needs one, other bound": {5, 1, 0, []int{5, 10, 15, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMixBed(t, c.turn)
			b.period(c.messages, c.files)
			if got := b.begun(20); !slices.Equal(got, c.want) {
				t.Errorf("the driver has %v requests, want %v", got, c.want)
			}
			b.period(0, 0)
			if got := b.begun(20); !slices.Equal(got, []int{20}) {
				t.Errorf("a period without messages later it has %v, want all at once", got)
			}
			b.period(100, 0) // whatever was asked for in the periods before
			few := map[int][]int{0: {8, 16, 20}, 5: {5, 10, 15, 20}}[c.turn]
			if got := b.begun(20); !slices.Equal(got, few) {
				t.Errorf("a period with messages later it has %v, want %v", got, few)
			}
		})
	}
}

// A server that reads ahead, say, has no messages that need files.
// Matrix: ST-12
func TestRequestsThatTheEndOfOthersAsksForAreNoMessages(t *testing.T) {
	b := newMixBed(t, 0)
	again := 100
	op := new(FileOp)
	op.Done = func(*Core, *FileOp) {
		if again--; again > 0 {
			must(t, b.f.ReadAt(op, make([]byte, unit), 0))
		}
	}
	must(t, b.f.ReadAt(op, make([]byte, unit), 0))
	for again > 0 {
		b.answer(uring.KindRead, 0)
	}
	b.period(2, 0)
	if got := b.begun(20); !slices.Equal(got, []int{8, 16, 20}) {
		t.Errorf("the driver has %v requests, want 8, 16, 20", got)
	}
}
