package door

import "testing"

func TestEachGuestHoldsItsOwnBytesWhateverTheOthersHold(t *testing.T) {
	cfg := Shares(16)
	cfg.Bytes = 1000
	d := New(cfg)
	greedy, _ := enter(t, d, ip(192, 0, 2, 1), start)
	if !greedy.Hold(OwnBytes) || !greedy.Hold(1000) {
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

// What an evicted guest holds is there until it is gone.
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
