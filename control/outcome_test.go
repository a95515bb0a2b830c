package control_test

import (
	"context"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
)

// becomesOf sends a message and waits for what becomes of it.
func becomesOf(t *testing.T, ctx context.Context, c *control.Conn, then func()) control.Outcome {
	t.Helper()
	freed := make(chan control.Outcome, 1)
	m := control.NewMessage(1, []byte("text"), make([]byte, 100<<10))
	m.Free = func(m *control.Message) { freed <- m.Outcome() }
	must(t, c.Send(m))
	if then != nil {
		then()
	}
	select {
	case o := <-freed:
		return o
	case <-ctx.Done():
		t.Fatal("the message is never freed")
	}
	return control.OutcomeNone
}

func TestFreeLearnsWhatBecameOfAMessage(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		lossless, lossy := nodeOf(t, v, "osd.1", "SFS", 1), nodeOf(t, v, "osd.2", "SLS", 2)
		one, two := nodeOf(t, v, "client.3", "LLC", 3), nodeOf(t, v, "client.4", "LC", 4)
		if o := becomesOf(t, ctx, one.Dial(lossless), nil); o != control.OutcomeAcknowledged {
			t.Errorf("lossless: %v", o)
		}
		if o := becomesOf(t, ctx, two.Dial(lossy), nil); o != control.OutcomeWritten {
			t.Errorf("lossy: %v", o)
		}
		must(t, lossless.Unbind())
		gone := nodeOf(t, v, "client.5", "LLC", 5)
		c := gone.Dial(lossless)
		if o := becomesOf(t, ctx, c, c.MarkDown); o != control.OutcomeDropped {
			t.Errorf("marked down: %v", o)
		}
		self, err := one.Loopback()
		must(t, err)
		if o := becomesOf(t, ctx, self, nil); o != control.OutcomeAcknowledged {
			t.Errorf("to ourselves: %v", o)
		}
	})
}
