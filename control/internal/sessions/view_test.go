package sessions

import (
	"reflect"
	"testing"
)

// RL-01: there are as many of these as connections; it fits a size of the allocator.
func TestWhatAConnectionShowsKeepsItsSize(t *testing.T) {
	if got := reflect.TypeFor[published]().Size(); got > 80 {
		t.Errorf("%d bytes, want at most 80", got)
	}
}
