package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringmsgr/ringmsgr/control"
)

func TestDoctorPrintsTheBoundsInForce(t *testing.T) {
	r := ringmsgr(t, "doctor", "--limits").want(t, 0)
	golden(t, "doctor-limits", r.stdout)
	for line := range strings.Lines(r.stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestDoctorPrintsTheBoundsAsJSON(t *testing.T) {
	got := decode[limitsReport](t, ringmsgr(t, "doctor", "--limits", "--json").want(t, 0)).Limits
	want := control.Config{}.Bounds()
	if len(got) != len(want) {
		t.Fatalf("%d bounds, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

func TestBoundsHaveTheirUnits(t *testing.T) {
	for want, b := range map[string]control.Bound{
		"none":     {Unit: control.UnitBytes},
		"1 MiB":    {Value: 1 << 20, Unit: control.UnitBytes},
		"64 KiB/s": {Value: 64 << 10, Unit: control.UnitRate},
		"1 000/s":  {Value: 1000, Unit: control.UnitPerSecond},
		"15m0s":    {Value: 9e11, Unit: control.UnitNanoseconds},
		"262 144":  {Value: 1 << 18, Unit: control.UnitMessages},
	} {
		if got := boundText(b); got != want {
			t.Errorf("%+v is written %q, want %q", b, got, want)
		}
	}
}
