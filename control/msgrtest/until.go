package msgrtest

import (
	"context"
	"time"
)

// Until asks ok every millisecond until it says yes, for what other goroutines
// bring about and no event tells. The error is the cause of ctx's end.
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
