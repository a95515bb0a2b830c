package msgrtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

func TestUntilAsksUntilTheAnswerIsYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		err := msgrtest.Until(t.Context(), func() bool { asked++; return asked == 3 })
		if err != nil || asked != 3 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}

func TestUntilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if err := msgrtest.Until(ctx, func() bool { return false }); !errors.Is(err, why) {
			t.Errorf("%v, want %v", err, why)
		}
		if err := msgrtest.Until(ctx, func() bool { return true }); err != nil {
			t.Errorf("what has happened: %v", err)
		}
	})
}
