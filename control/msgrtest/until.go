package msgrtest

import (
	"context"
	"time"
)

// Until calls ok every millisecond until it returns true, for a condition that other
// goroutines bring about without an event. The error is the cause of the end of ctx.
func Until(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
