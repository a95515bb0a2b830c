package control_test

import (
	"os"
	"testing"
	"time"
)

// longTest is how long tests run that get better with time: RINGMSGR_LONG, or
// short.
func longTest(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv("RINGMSGR_LONG")
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("RINGMSGR_LONG: %v", err)
	}
	return d
}
