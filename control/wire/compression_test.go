package wire

import "testing"

func TestACompressionIsReadByTheNameThatItPrints(t *testing.T) {
	for _, m := range []CompressionMethod{CompressionNone, CompressionSnappy, CompressionZlib, CompressionZstd, CompressionLZ4} {
		if got, err := ParseCompression(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	for _, name := range []string{"", "brotli", "ZSTD"} {
		if m, err := ParseCompression(name); err == nil {
			t.Errorf("%q: %v", name, m)
		}
	}
	if got := CompressionMethod(77).String(); got != "compression(77)" {
		t.Error(got)
	}
}
