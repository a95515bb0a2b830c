package cli

import (
	"testing"
	"time"
)

func TestQuantitiesReadWell(t *testing.T) {
	for want, got := range map[string]string{
		"64 B": Bytes(64), "4 KiB": Bytes(4096), "1 MiB": Bytes(1 << 20), "1.5 KiB": Bytes(1536), "10 KiB": Bytes(10240), "0 B": Bytes(-1),
		"1 234 567": Count(1234567), "999": Count(999), "1 000": Count(999.9), "12.3": Count(12.34), "0.12": Count(0.123),
		"1.23 us": Micros(1.234), "12.3 us": Micros(12.34), "123 us": Micros(123.4), "1.23 ms": Micros(1234), "1.50 s": Micros(1.5e6),
		"250 s": Duration(250 * time.Second), "0.00 us": Duration(0),
		"0": Rate(0, ""), "0 B/s": Rate(0, "B/s"), "0.5": Rate(0.5, ""), "9.5 kB/s": Rate(9500, "B/s"), "106.6 k": Rate(106640, ""),
		"12.5 M": Rate(12.5e6, ""), "1.9 MB/s": Rate(1.953e6, "B/s"), "1.9 k": Rate(1949, ""), "3 B/s": Rate(3, "B/s"), "501.9 MB/s": Rate(501.961e6, "B/s"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSizesAreRead(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "64": 64, "64B": 64, "16KiB": 16 << 10, "4MiB": 4 << 20, "1GiB": 1 << 30, "1.5MiB": 3 << 19, "4MB": 4e6, "4 MiB": 4 << 20,
	} {
		if got, err := ParseBytes(text, 1<<30); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "0x10", "many", "1.1GiB", "99999999999999999999", "10e30"} {
		if got, err := ParseBytes(text, 1<<30); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}
