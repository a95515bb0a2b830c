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
