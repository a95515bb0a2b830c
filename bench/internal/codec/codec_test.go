package codec

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestEveryOperationIsMeasured(t *testing.T) {
	var said []string
	all, err := Measure(t.Context(), Options{Sizes: []int{100, 40 << 10}, Rounds: 2, Slice: time.Millisecond}, func(s string) { said = append(said, s) })
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 || len(said) != 4 {
		t.Fatalf("%d results, said %q", len(all), said)
	}
	for i, c := range all {
		if want := []string{"seal", "open"}[i%2]; c.Op != want || c.Size != []int{100, 40 << 10}[i/2] {
			t.Errorf("%d is %s of %d", i, c.Op, c.Size)
		}
		if len(c.Samples) != 2 || c.GBPerS <= 0 || c.CipherGBPerS <= 0 || c.Ratio.Median <= 0 || c.Ratio.Rounds != 2 {
			t.Errorf("%+v", c)
		}
		if c.Allocations != 0 {
			t.Errorf("%s of %d: %v allocations per frame", c.Op, c.Size, c.Allocations)
		}
	}
}

func TestMeasuringEndsWithTheContext(t *testing.T) {
	gone := errors.New("gone")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(gone)
	_, err := Measure(ctx, Options{Sizes: []int{100}, Rounds: 1, Slice: time.Hour}, func(string) {})
	if !errors.Is(err, gone) {
		t.Fatalf("error %v", err)
	}
}

func TestDamageIsNotMeasured(t *testing.T) {
	b, err := newBench(64)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.encode(b.opened); err != nil {
		t.Fatal(err)
	}
	b.frames[0][70] ^= 1
	if err := b.decode(); err == nil {
		t.Fatal("a damaged frame was opened")
	}
}
