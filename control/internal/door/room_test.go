package door

import (
	"testing"
	"time"
)

// lined is a door with 8 places, 4 of them for a source, and a line of 4. One of a source may
// come to nothing, and one in a second.
func lined() (*Door, *clock) {
	c := &clock{now: start}
	return New(Config{
		Most: 8, PerSource: 4, PerPrefix: 8, Patience: time.Second, Grace: 250 * time.Millisecond, Line: 4,
		Rate: Rate{PerSecond: 1, Burst: 1, Line: 5, Longest: 2 * time.Second, Kept: 8, Clock: c},
	}), c
}

// fill lets in as many of a source as there are places for it alone, and has each wait for
// its peer.
func fill(t *testing.T, d *Door, c *clock) (all []*visitor) {
	t.Helper()
	for range 5 {
		v := visit(t, d, c, bad)
		v.Listen(c.now)
		all = append(all, v)
	}
	return all
}

func (v *visitor) check(t *testing.T, what string, begun, evicted bool) {
	t.Helper()
	if v.begun != begun || v.evicted != evicted {
		t.Errorf("%s: begun %v, has to go %v; want %v, %v", what, v.begun, v.evicted, begun, evicted)
	}
}

// Matrix: RL-02
func TestANewcomerWaitsForAPlaceWhileNobodyIsToBlame(t *testing.T) {
	d, c := lined()
	inside := fill(t, d, c)
	inside[0].Progress(c.now)
	late := visit(t, d, c, bad)
	c.pass(200 * time.Millisecond)
	late.check(t, "while all have their grace", false, false)
	inside[0].Passed()
	inside[0].Leave()
	inside[1].Passed()
	inside[1].Leave()
	late.check(t, "when two have left", true, false)
	if n := d.Counters(); n != (Counters{Lined: 1}) || d.Waiting() != 0 || len(d.owedBySource.of) != 0 {
		t.Errorf("%+v, %d wait, %d owe", n, d.Waiting(), len(d.owedBySource.of))
	}
	visit(t, d, c, other)
	late = visit(t, d, c, bad)
	for range 3 {
		d.CameToNothing(bad, c.now)
	}
	inside[2].Passed()
	inside[2].Leave()
	late.check(t, "while its source owes", false, false)
}

// Matrix: RL-02
func TestWhoIsSilentBeyondItsGraceGivesWayAndIsCharged(t *testing.T) {
	d, c := lined()
	inside := fill(t, d, c)
	c.pass(100 * time.Millisecond)
	inside[0].Progress(c.now)
	inside[0].Listen(c.now)
	late := visit(t, d, c, bad)
	c.pass(200 * time.Millisecond)
	late.check(t, "the newcomer", true, false)
	inside[0].check(t, "one that has moved", true, false)
	inside[1].check(t, "the oldest that is silent", true, true)
	for _, v := range inside[2:] {
		v.Progress(c.now)
	}
	late.Listen(c.now)
	next := visit(t, d, c, bad)
	c.pass(300 * time.Millisecond)
	next.check(t, "another newcomer", true, false)
	late.check(t, "the one before, which is silent too", true, true)
	if n := d.Counters().Evicted; n != 2 {
		t.Errorf("%d were evicted", n)
	}
	if inside[1].Leave(); d.owedBySource.wait(SourceOf(bad), c.now) == 0 {
		t.Error("its silence costs nothing")
	}
}

// A handshake whose goroutine does not read yet has not been silent, however long that takes.
func TestNobodyIsSilentBeforeItIsListenedTo(t *testing.T) {
	d, c := lined()
	inside := visits(t, d, c, bad, 5)
	late := visit(t, d, c, bad)
	c.pass(time.Second)
	late.check(t, "the newcomer", false, false)
	inside[0].Listen(c.now)
	c.pass(200 * time.Millisecond)
	inside[0].Listen(c.now) // another read of the same wait
	late.check(t, "the newcomer, in the grace of the first", false, false)
	c.pass(100 * time.Millisecond)
	late.check(t, "the newcomer", true, false)
	inside[0].check(t, "the silent one", true, true)
	inside[1].Listen(c.now)
	before := visit(t, d, c, bad)
	c.now = c.now.Add(260 * time.Millisecond) // and no timer has looked
	next := visit(t, d, c, bad)
	before.check(t, "the first in line", true, false)
	next.check(t, "the one behind", false, false)
}

// Who is evicted while its peer waits for our answer is not charged; who stood still is.
func TestWhoWaitsForUsIsNotCharged(t *testing.T) {
	for _, ours := range []bool{true, false} {
		d, c := lined()
		inside := fill(t, d, c)
		for _, v := range inside {
			if v.Progress(c.now); !ours {
				v.Listen(c.now)
			}
		}
		late := visit(t, d, c, bad)
		c.pass(1100 * time.Millisecond)
		late.check(t, "the newcomer", true, false)
		inside[0].check(t, "the one that has stood still for longest", true, true)
		inside[0].Failed(c.now)
		if charged := d.owedBySource.wait(SourceOf(bad), c.now) > 0; charged == ours {
			t.Errorf("our turn %v, charged %v", ours, charged)
		}
		inside[0].Leave()
	}
}

// Matrix: RL-02, RL-08
func TestTheLineForPlacesHasItsBoundAndItsEnd(t *testing.T) {
	d, c := lined()
	inside := fill(t, d, c)
	for _, v := range inside {
		v.Progress(c.now)
	}
	line := visits(t, d, c, bad, 4)
	if g, cause := d.Admit(bad, c.now); g != nil || cause != FullSource {
		t.Errorf("one more waits: %v", cause)
	}
	if v := visit(t, d, c, other); !v.begun {
		t.Error("another source waits")
	}
	for range 10 {
		for _, v := range inside {
			v.Progress(c.now)
		}
		c.pass(250 * time.Millisecond)
	}
	for _, v := range line {
		v.check(t, "one that has waited for too long", true, true)
		v.Leave()
	}
	if n := d.Counters(); n != (Counters{Source: 1, Lined: 4, Late: 4}) || d.Waiting() != 0 || d.all.leaving != 0 || len(d.owedBySource.of) != 0 {
		t.Errorf("%+v, %d wait, %d are leaving, %d owe", n, d.Waiting(), d.all.leaving, len(d.owedBySource.of))
	}
}

// Half of the line is for everybody; a source has its share of the rest.
func TestOneSourceDoesNotTakeTheWholeLine(t *testing.T) {
	c := &clock{now: start}
	cfg := Shares(64).Waiting()
	cfg.Rate = Rate{Longest: 2 * time.Second, Clock: c}
	d := New(cfg)
	n := 0
	for range 100 {
		if g, _ := d.Admit(bad, c.now); g != nil {
			n++
		}
	}
	if most := 64/2 + 1 + 64/4; n != most {
		t.Errorf("%d of a source are in or wait, want %d", n, most)
	}
	d.Close()
}

// Sockets that stay silent are charged as before, and those that wait with them not let in
// faster than what came to nothing allows.
// Matrix: AIM-05
func TestAFloodOfSilentSocketsIsBoundedByTheRate(t *testing.T) {
	d, c := lined()
	begun := 0
	const seconds = 20
	for range seconds * 100 {
		if g, _ := d.Admit(bad, c.now); g != nil {
			g.Begin(func() {
				if !g.evicted.Load() {
					begun++
				}
				g.OnEvict(g.Leave)
				g.Listen(c.now)
			})
		}
		c.pass(10 * time.Millisecond)
	}
	if most := 8 + seconds + 2; begun > most {
		t.Errorf("%d began in %d s, want at most %d", begun, seconds, most)
	}
}

func TestNobodyWaitsForAPlaceAtADoorThatIsClosed(t *testing.T) {
	d, c := lined()
	fill(t, d, c)
	late := visit(t, d, c, bad)
	d.Close()
	late.check(t, "one that waits", true, true)
	if g, cause := d.Admit(bad, c.now); g != nil || cause != FullSource {
		t.Errorf("one more waits: %v", cause)
	}
}

func TestEachGuestHoldsItsOwnBytesWhateverTheOthersHold(t *testing.T) {
	cfg := Shares(16)
	cfg.Bytes = 1000
	d := New(cfg)
	greedy, _ := enter(t, d, ip(192, 0, 2, 1), start)
	if !greedy.Hold(OwnBytes) || !greedy.Hold(600) || !greedy.Hold(400) {
		t.Fatal("no room where there is")
	}
	if greedy.Hold(1) || d.Counters().Memory != 1 || d.Beyond() != 1000 {
		t.Errorf("held beyond the bound: %d, %+v", d.Beyond(), d.Counters())
	}
	honest, _ := enter(t, d, ip(192, 0, 2, 2), start)
	if !honest.Hold(OwnBytes-1) || !honest.Hold(1) {
		t.Error("another guest has not what is its own")
	}
	if honest.Hold(1) {
		t.Error("a guest holds what is not there")
	}
	greedy.Leave()
	greedy.Leave()
	if d.Beyond() != 0 || !honest.Hold(1000) || honest.Hold(1) {
		t.Errorf("%d bytes are held by who has left", d.Beyond())
	}
	honest.Leave()
	if d.Beyond() != 0 {
		t.Errorf("%d bytes are left", d.Beyond())
	}
}

func TestAnEvictedGuestHoldsItsBytesUntilItLeaves(t *testing.T) {
	cfg := Shares(1)
	cfg.Bytes = 100
	d := New(cfg)
	g, cause := d.Admit(ip(1), start)
	if cause != Admitted || !g.Hold(OwnBytes+100) {
		t.Fatal(cause)
	}
	if next, _ := d.Admit(ip(2), start); next == nil || next.Hold(OwnBytes+1) || d.Beyond() != 100 {
		t.Errorf("%d bytes are held", d.Beyond())
	}
	g.Leave()
	if d.Beyond() != 0 {
		t.Errorf("%d bytes are left", d.Beyond())
	}
}

func TestNoBoundOfBytesIsNone(t *testing.T) {
	d := New(Shares(4))
	g, _ := enter(t, d, ip(1), start)
	if !g.Hold(1 << 40) {
		t.Error("refused without a bound")
	}
	if !(*Guest)(nil).Hold(1) {
		t.Error("no guest has no room")
	}
}

// Beyond is the number of bytes that all guests hold beyond OwnBytes each.
func (d *Door) Beyond() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.beyond
}
