package control

import (
	"math/rand/v2"
	"testing"
)

func TestCallTableFindsLikeAMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var table callTable
		model := make(map[uint64]*Request)
		for range 3000 {
			r := &Request{tid: rng.Uint64N(400) << rng.IntN(3)}
			switch old := model[r.tid]; {
			case table.get(r.tid) != old:
				t.Fatalf("seed %d: %d is not found, or what is not there is", seed, r.tid)
			case old == nil:
				if !table.add(r) {
					t.Fatalf("seed %d: no room for %d", seed, r.tid)
				}
				model[r.tid] = r
			case table.add(r):
				t.Fatalf("seed %d: %d is there twice", seed, r.tid)
			default:
				table.remove(old)
				delete(model, r.tid)
			}
			if table.n != len(model) {
				t.Fatalf("seed %d: %d calls, want %d", seed, table.n, len(model))
			}
		}
		all := table.all()
		if len(all) != len(model) {
			t.Fatalf("seed %d: %d listed, want %d", seed, len(all), len(model))
		}
		for i, r := range all {
			if model[r.tid] != r || i > 0 && all[i-1].tid >= r.tid {
				t.Fatalf("seed %d: listed wrong", seed)
			}
		}
	}
}

// Ids of one messenger never meet, whatever the number of its connections.
func TestTransactionIDsOfAMessengerDiffer(t *testing.T) {
	m := &Messenger{}
	m.lastTID.Store(^uint64(0) - tidBlock - 1) // 0 comes up, and is no id
	seen := make(map[uint64]bool)
	conns := []*Conn{{m: m}, {m: m}, {m: m}}
	for i := range 5 * tidBlock {
		r := &Request{Message: &Message{}}
		conns[i%len(conns)].calls.name(r, &m.lastTID)
		if r.tid == 0 || seen[r.tid] || r.Message.TID != r.tid {
			t.Fatalf("call %d has id %d, the message %d", i, r.tid, r.Message.TID)
		}
		seen[r.tid] = true
	}
}

// An id that a user has chosen is given to no other request while it is under way.
func TestATransactionIDOfAUserIsGivenToNobodyElse(t *testing.T) {
	c := &Conn{m: &Messenger{}}
	c.calls.table.add(&Request{tid: 2})
	for _, want := range []uint64{1, 3} {
		r := &Request{Message: &Message{}}
		if c.calls.name(r, &c.m.lastTID); r.tid != want {
			t.Errorf("got %d, want %d", r.tid, want)
		}
	}
}

// A peer may guess an id: what comes before the request was written is no reply.
func TestNothingAnswersARequestThatWasNotWritten(t *testing.T) {
	c, replies := &Conn{}, 0
	r := &Request{conn: c, tid: 5, taken: true, Done: func(*Request, *Message, error) { replies++ }}
	c.calls.table.add(r)
	m := &Message{TID: 5}
	if c.calls.answered(m) || replies != 0 {
		t.Errorf("answered before it was written")
	}
	if r.sent = true; !c.calls.answered(m) || replies != 1 {
		t.Errorf("not answered behind that: %d replies", replies)
	}
}
