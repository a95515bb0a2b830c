package control_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// dataServer answers each request with as many bytes of data as its front asks for, at
// once or, of typeLater, when it is told to.
func dataServer(t *testing.T, v variant, policy string, later func(func() error),
	change ...func(*nodetest.NodeConfig)) *nodetest.Node {
	return nodeOf(t, v, "osd.0", policy, 1, append(change,
		withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			size := int(binary.LittleEndian.Uint32(m.Front))
			reply := control.NewMessage(m.Type, []byte("answer"), dataOf(size))
			if m.Type == typeLater {
				due := c.Later(m)
				later(func() error { return due.Send(reply) })
				return true
			}
			if c.Reply(m, reply) != nil {
				reply.Release()
			}
			return true
		}}))...)
}

// dataOf is what a reply of that size has.
func dataOf(size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(i*7 + size + i>>9)
	}
	return p
}

func dataRequest(typ uint16, size int) *control.Message {
	return control.NewMessage(typ, binary.LittleEndian.AppendUint32(nil, uint32(size)), nil)
}

// ours fills memory as only its owner may.
func ours(p []byte) {
	for i := range p {
		p[i] = 0xa5
	}
}

func isOurs(p []byte) bool { return bytes.Count(p, []byte{0xa5}) == len(p) }

func TestTheDataOfAReplyComesIntoTheBufferOfItsCall(t *testing.T) {
	everyModeAndProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := dataServer(t, v, "SFS", nil)
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		for _, c := range []struct {
			size, buffer int
			fits         bool
		}{
			{1, 1, true}, {100, 200, true}, {5000, 5000, true}, {4 << 20, 4 << 20, true},
			{300_000, 1 << 20, true}, {5000, 4999, false}, {300_000, 4096, false}, {0, 100, false},
		} {
			all := make([]byte, c.buffer+8)
			ours(all)
			reply, err := conn.Call(ctx, dataRequest(typeUpper, c.size), control.WithBuffer(all[:c.buffer]))
			must(t, err)
			if !bytes.Equal(reply.Data, dataOf(c.size)) || reply.Posted() != c.fits ||
				c.fits && &reply.Data[0] != &all[0] {
				t.Errorf("%d bytes for %d: posted %v", c.size, c.buffer, reply.Posted())
			}
			if from := map[bool]int{true: c.size}[c.fits]; !isOurs(all[from:]) {
				t.Errorf("%d bytes for %d: memory behind the data was written", c.size, c.buffer)
			}
			reply.Release()
			if c.fits && !bytes.Equal(all[:c.size], dataOf(c.size)) {
				t.Errorf("%d bytes: the memory changed with the release", c.size)
			}
		}
		if st, err := conn.Stats(); err != nil || st.IO.Posted != 5 || st.IO.PostingMisses != 2 || st.IO.Postings != 0 {
			t.Errorf("%+v, %v", st.IO, err)
		}
	})
}

// When Call returns, its buffer is the caller's, and a reply that comes then finds
// another place. It goes where all go that nobody waits for, under the id of its call.
// Matrix: V1-13
func TestACallThatEndsGivesItsBufferBack(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		answers := make(chan func() error, 1)
		server := dataServer(t, v, "SFS", func(f func() error) { answers <- f })
		late := make(chan bool, 1)
		client := nodeOf(t, v, "client.1", "LLC", 2,
			withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				late <- !m.Posted() && m.TID == 77 && bytes.Equal(m.Data, dataOf(100_000))
				return true
			}}))
		conn := client.Dial(server)
		for _, posted := range []bool{true, false, true} {
			short, cancel := context.WithCancelCause(ctx)
			why := errors.New("why")
			buffer, opts := make([]byte, 100_000), []control.CallOption{control.WithTID(77)}
			if posted {
				opts = append(opts, control.WithBuffer(buffer))
			}
			go func() { answers <- <-answers; cancel(why) }()
			_, err := conn.Call(short, dataRequest(typeLater, len(buffer)), opts...)
			if !errors.Is(err, why) {
				t.Fatalf("got %v", err)
			}
			ours(buffer)
			must(t, (<-answers)())
			if !<-late || !isOurs(buffer) {
				t.Error("the late reply did not come whole into memory of its own")
			}
		}
	})
}

// Whose context has ended still waits for the core, which may be reading into the memory; without memory nobody waits.
func TestACallThatEndsWaitsForTheCoreOnlyIfThatHasItsBuffer(t *testing.T) {
	silent := &control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool { return true }}
	pair.Test(t, pair.Config{Serve: silent}, func(t *testing.T, p *pair.Pair) {
		for _, opts := range [][]control.CallOption{nil, {control.WithBuffer(make([]byte, 100))}} {
			ctx, cancel := context.WithCancel(p.Context)
			over := make(chan error, 1)
			go func() {
				_, err := p.Conn.Call(ctx, control.NewMessage(typeUpper, nil, nil), opts...)
				over <- err
			}()
			p.Settle()
			p.Do(func() { // no core has a turn meanwhile
				cancel()
				synctest.Wait()
				if ended := len(over) > 0; ended != (opts == nil) {
					t.Errorf("with %d options it has ended before the core knows: %v", len(opts), ended)
				}
			})
			wantError(t, "the call", <-over, context.Canceled)
		}
	})
}

func TestPostingsAreBoundedAndCheckedWhereTheyAreMade(t *testing.T) {
	ctx := deadline(t)
	server := dataServer(t, variants[0], "SFS", nil)
	client := nodeOf(t, variants[0], "client.1", "LLC", 2, func(c *nodetest.NodeConfig) { c.Receiving.Postings = 2 })
	conn := client.Dial(server)
	ended := make(chan error, 8)
	posting := func(tid uint64) *control.Posting {
		return &control.Posting{TID: tid, Buffer: make([]byte, 10),
			Done: func(_ *control.Posting, err error) { ended <- err }}
	}
	first, second := posting(1), posting(1)
	must(t, conn.PostBuffer(first))
	wantError(t, "one that is posted", conn.PostBuffer(first), control.ErrInUse)
	must(t, conn.PostBuffer(second))
	wantError(t, "the same id", <-ended, control.ErrTIDInUse)
	must(t, second.TakeBack(ctx))
	second.TID = 2
	must(t, conn.PostBuffer(second))
	wantError(t, "one more", conn.PostBuffer(posting(3)), control.ErrTooManyPostings)
	for _, p := range []*control.Posting{{TID: 5}, {Buffer: make([]byte, 1)}} {
		wantError(t, fmt.Sprint("id ", p.TID), conn.PostBuffer(p), control.ErrConfig)
		p.Withdraw()
		must(t, p.TakeBack(ctx))
	}
	must(t, second.TakeBack(ctx))
	wantError(t, "taken back", <-ended, context.Canceled)
	// On the core everything happens at once, and nothing waits.
	ran := make(chan struct{})
	conn.Post(&loop.Task{Run: func(*loop.Core) {
		defer close(ran)
		third := posting(1)
		wantError(t, "the same id on the core", conn.PostBuffer(third), control.ErrTIDInUse)
		third.TID = 3
		check(t, conn.PostBuffer(third))
		wantError(t, "a core that waits for itself", third.TakeBack(ctx), loop.ErrOnCore)
		third.Withdraw()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("withdrawn: %v", err)
			}
		default:
			t.Error("the posting is not over when Withdraw returns")
		}
		// One that another goroutine has posted is on its way here, and ends when it arrives.
		late := posting(4)
		check(t, <-async(func() error { return conn.PostBuffer(late) }))
		late.Withdraw()
	}})
	<-ran
	wantError(t, "withdrawn on its way", <-ended, context.Canceled)
	busy := make(chan struct{})
	conn.Post(&loop.Task{Run: func(*loop.Core) { <-busy }})
	first.Withdraw()
	first.Withdraw() // both wait for the core
	close(busy)
	wantError(t, "withdrawn", <-ended, context.Canceled)
	us, err := nodeOf(t, variants[0], "osd.4", "LP", 4).Loopback()
	must(t, err)
	wantError(t, "to ourselves", us.PostBuffer(posting(1)), errors.ErrUnsupported)
	if st, err := conn.Stats(); err != nil || st.IO.Postings != 0 || len(ended) != 0 {
		t.Errorf("%d postings, %d have ended twice, %v", st.IO.Postings, len(ended), err)
	}
}

// Goroutines post, ask, and take back at moments of their own, over sockets that fail and
// between two cores. What is taken back is theirs: the race detector and their pattern
// say so. Every message comes whole, into memory of the one or of the other.
// Matrix: V1-13
func TestWhatIsTakenBackIsNotTouched(t *testing.T) {
	seed := seedOfSample(t)
	t.Logf("RINGMSGR_SAMPLE=%d", seed)
	everyModeAndProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		inject := injects(probe.Inject{Seed: seed + 1, SocketFailures: 200})
		server := dataServer(t, v, "SFS", nil, inject)
		var mu sync.Mutex
		came := map[uint64]chan bool{}
		cores := func(c *nodetest.NodeConfig) { c.Plane.Cores = 2 }
		client := nodeOf(t, v, "client.1", "LLC", 2, inject, cores,
			withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				mu.Lock()
				defer mu.Unlock()
				came[m.TID] <- m.Posted()
				if !m.Posted() && !bytes.Equal(m.Data, dataOf(len(m.Data))) {
					t.Error("a message came with other data")
				}
				return true
			}}))
		conn := client.Dial(server)
		var wg sync.WaitGroup
		used := 0
		for g := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(g)))
				for i := range 40 {
					size := 1 + rng.IntN(1<<rng.IntN(20))
					tid := uint64(1 + g*1000 + i)
					answer, done := make(chan bool, 1), make(chan error, 1)
					mu.Lock()
					came[tid] = answer
					mu.Unlock()
					p := &control.Posting{TID: tid, Buffer: make([]byte, size),
						Done: func(_ *control.Posting, err error) { done <- err }}
					if err := conn.PostBuffer(p); err != nil {
						t.Error(err)
						return
					}
					m := dataRequest(typeUpper, size)
					m.TID = tid
					if err := conn.SendContext(ctx, m); err != nil {
						t.Error(err)
						return
					}
					posted, early := false, rng.IntN(3) > 0
					if !early {
						posted = <-answer
					}
					for range rng.IntN(2000) { // some moment
						_ = conn.ID()
					}
					if err := p.TakeBack(ctx); err != nil {
						t.Error(err)
						return
					}
					err := <-done
					if err == nil && !bytes.Equal(p.Buffer, dataOf(size)) {
						t.Errorf("message %d came with other data", tid)
					}
					ours(p.Buffer)
					if early {
						posted = <-answer
					}
					if posted != (err == nil) || err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("message %d: posted %v, outcome %v", tid, posted, err)
					}
					if !isOurs(p.Buffer) {
						t.Errorf("message %d: memory was touched after it was taken back", tid)
					}
					mu.Lock()
					if posted {
						used++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		t.Log(used, "of 160 were used")
		if st, err := conn.Stats(); err != nil || st.IO.Postings != 0 {
			t.Errorf("%d postings, %v", st.IO.Postings, err)
		}
	})
}
