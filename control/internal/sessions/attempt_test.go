package sessions

import (
	"context"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/bpf"
)

func TestAnAttemptIsCancelledUntilItEndsAndHoldsNoContextBehindThat(t *testing.T) {
	m, _ := hintMessenger(t, bpf.PortRange{})
	a, cause := m.newAttempt(), errors.New("the cause")
	ctx := a.ctx
	a.cancel(cause)
	if got := context.Cause(ctx); !errors.Is(got, cause) {
		t.Errorf("cause %v", got)
	}
	a.release()
	a.cancel(errors.New("too late")) // by who takes the connection over
	if a.ctx != nil || a.cancelCtx.Load() != nil || !errors.Is(context.Cause(ctx), cause) {
		t.Errorf("context %v, cause %v", a.ctx, context.Cause(ctx))
	}
}
