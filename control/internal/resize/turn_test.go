package resize

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOneAtATimeChangesTheCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExclusive(t.Context())
		unlock, err := e.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second := false
		go func() {
			unlock, err := e.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			second = true
			unlock()
		}()
		if synctest.Wait(); second {
			t.Error("two have it")
		}
		unlock()
		if synctest.Wait(); !second {
			t.Error("the second one waits for ever")
		}
	})
}

func TestTheWaitForTheCoresEndsWithItsContextAndWithTheMessenger(t *testing.T) {
	stopped, down := errors.New("stopped waiting"), errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		over, shutdown := context.WithCancelCause(t.Context())
		e := newExclusive(over)
		unlock, err := e.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		wait := func(ctx context.Context) {
			_, err := e.Lock(ctx)
			ended <- err
		}
		go wait(ctx)
		synctest.Wait()
		cancel(stopped)
		if err := <-ended; !errors.Is(err, stopped) {
			t.Errorf("its context has ended: %v", err)
		}
		go wait(t.Context())
		synctest.Wait()
		shutdown(down)
		if err := <-ended; !errors.Is(err, down) {
			t.Errorf("the messenger has ended: %v", err)
		}
		if _, err := e.Lock(ctx); !errors.Is(err, stopped) {
			t.Errorf("its context had ended before: %v", err)
		}
	})
}
