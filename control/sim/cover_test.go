//go:build !race

package sim_test

import (
	"math"
	"reflect"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// simCover counts what happened in simulations, so that they cannot silently
// stop to cover it.
type simCover struct {
	Seeds, Steps                                         int
	Messages, Repeated, Kept, QueueFull                  int
	Blocked, Canceled                                    int
	Connects, Accepts, Replaced, Moves                   int
	Resets, ReplaceResets, RemoteResets, PartialResets   int
	Waits, Retries, GlobalRetries, ReconnectOKs          int
	Downs, DownInDispatch, DownInReplace, DeathInReplace int
	Shutdowns, Kills, Frozen, Cuts, Forgotten            int
	KeepaliveAcks, Breaks, NetResets, Paused             int
	Added, Removed, Migrated, MovedLive                  int
	Rebinds, RebindsDown                                 int
	DriverFaults                                         int
	TookBuffers, LeftBuffers, NoBuffers                  int // of receiving
	Opens1, Resumes1                                     int // of msgr1
	Waits1, Retries1, Resets1                            int // the answers of nodes that have it alone
	KeepaliveAcks1                                       int
	PostedUsed, PostedTaken                              int // TestSimulationOfPostings

	Acts map[string]int `json:",omitempty"` // of an adversary

	mu sync.Mutex // of what handshakes count
}

// wrote counts a frame of a session handshake. Any goroutine.
func (c *simCover) wrote(tag frame.Tag) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch tag {
	case frame.TagWait:
		c.Waits++
	case frame.TagSessionRetry:
		c.Retries++
	case frame.TagSessionRetryGlobal:
		c.GlobalRetries++
	case frame.TagSessionReconnectOK:
		c.ReconnectOKs++
	}
}

func (c *simCover) struck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Breaks++
}

// add sums up.
func (c *simCover) add(o *simCover) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		if f := sum.Field(i); f.Kind() == reflect.Int {
			f.SetInt(f.Int() + more.Field(i).Int())
		}
	}
	for what, n := range o.Acts {
		if c.Acts == nil {
			c.Acts = make(map[string]int)
		}
		c.Acts[what] += n
	}
}

// simRare need many seeds to happen for certain. Messages that come again, to a
// receiver that has forgotten them, need not happen at all.
var simRare = map[string]int{
	"Canceled": 1000, "PartialResets": 1000, "GlobalRetries": 1000, "DownInReplace": 1000, "DeathInReplace": 1000,
	"Repeated": math.MaxInt, "PostedUsed": math.MaxInt, "PostedTaken": math.MaxInt,
}

// simOnly is what one protocol alone has.
var simOnly = map[string]simProtocol{
	"Waits": simMsgr2, "Retries": simMsgr2, "GlobalRetries": simMsgr2, "ReconnectOKs": simMsgr2, "PartialResets": simMsgr2,
	"Opens1": simMsgr1, "Resumes1": simMsgr1, "Waits1": simMsgr1, "Retries1": simMsgr1, "Resets1": simMsgr1, "KeepaliveAcks1": simMsgr1,
}

// check fails if something never happened that must have in so many seeds.
func (c *simCover) check(t *testing.T) {
	t.Helper()
	sum := reflect.ValueOf(c).Elem()
	for i := range sum.NumField() {
		f, name := sum.Field(i), sum.Type().Field(i).Name
		if only := simOnly[name]; f.Kind() != reflect.Int || *simOneProtocol != "" && only != "" && only != simProtocol(*simOneProtocol) {
			continue
		}
		t.Logf("%-16s %d", name, f.Int())
		if f.Int() == 0 && c.Seeds >= simRare[name] {
			t.Errorf("%s never happened in %d seeds", name, c.Seeds)
		}
	}
}
