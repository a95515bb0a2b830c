package dataplane

import (
	"errors"
	"testing"
	"time"
)

// A zero field of a configuration stands for its default, a negative one for no
// bound, as in package control.

func TestAZeroQueueBoundIsTheDefaultAndANegativeOneIsNone(t *testing.T) {
	b := newBed(t, nil)
	piece := make([]byte, 1<<20) // all messages share it
	for _, one := range []struct {
		name     string
		messages int // held before
		bytes    int64
		cfg      HandlerConfig
		refused  bool
	}{
		{"room for one message more", DefaultQueueMessages - 1, 0, HandlerConfig{}, false},
		{"zero number", DefaultQueueMessages, 0, HandlerConfig{}, true},
		{"negative number", DefaultQueueMessages, 0, HandlerConfig{QueueMessages: -1}, false},
		{"room for its bytes", 1, DefaultQueueBytes - 1<<20, HandlerConfig{}, false},
		{"zero bytes", 1, DefaultQueueBytes, HandlerConfig{}, true},
		{"negative bytes", 1, DefaultQueueBytes, HandlerConfig{QueueBytes: -1}, false},
	} {
		one.cfg.Owner = &recorder{}
		h := NewHandler(b.c, one.cfg)
		for range one.messages {
			h.held.add(one.bytes)
		}
		err := h.Send(&Message{Data: piece})
		if want := one.refused; errors.Is(err, ErrQueueFull) != want || (err == nil) == want {
			t.Errorf("%s: got %v, refused should be %v", one.name, err, want)
		}
		h.Close(nil)
		b.settle()
	}
}

func TestAZeroIdleLimitIsTheDefaultAndANegativeOneIsNever(t *testing.T) {
	b := newBed(t, nil)
	zero, none := b.conn(OpenOptions{}), b.conn(OpenOptions{IdleAfter: -1})
	b.after(DefaultIdleAfter - time.Second)
	if err := zero.own.fault(); err != nil {
		t.Fatalf("%v before the default", err)
	}
	b.after(2 * time.Second)
	if err := zero.own.fault(); !errors.Is(err, errIdle) {
		t.Errorf("fault %v after the default", err)
	}
	if err := none.own.fault(); err != nil {
		t.Errorf("%v without a limit", err)
	}
}

func TestAZeroLeastRateIsTheDefaultAndANegativeOneIsAnyRate(t *testing.T) {
	b := newBed(t, nil)
	zero, none := b.conn(OpenOptions{}), b.conn(OpenOptions{LeastRate: -1})
	noGrace := b.conn(OpenOptions{MessageGrace: -1})
	conns := []*conn{zero, none, noGrace}
	var ended [3]time.Duration
	for _, c := range conns {
		c.part(1, 1<<20, 2*DefaultLeastRate) // worth just below two seconds: the preamble does not count
	}
	for now := time.Second; now <= 60*time.Second; now += time.Second {
		b.after(time.Second)
		for i, c := range conns {
			if ended[i] == 0 && errors.Is(c.own.fault(), errTooSlow) {
				ended[i] = now
			}
		}
	}
	const worth = 2 * time.Second
	if want := DefaultMessageGrace + worth; ended[0] != want {
		t.Errorf("of the zero options: too slow after %v, want %v", ended[0], want)
	}
	if ended[1] != 0 {
		t.Errorf("without a least rate: too slow after %v", ended[1])
	}
	if ended[2] != worth {
		t.Errorf("without a grace: too slow after %v, want %v", ended[2], worth)
	}
}
