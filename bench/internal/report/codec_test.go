package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestTheCodecIsComparedRoundByRound(t *testing.T) {
	c := Codec{Size: 64 << 10, Op: "seal", Samples: []CodecSample{
		{Round: 1, NS: 20000, CipherNS: 19000}, {Round: 2, NS: 40000, CipherNS: 40000}, {Round: 3, NS: 21000, CipherNS: 18900},
	}}
	c.Compute()
	if r := c.Ratio; r.Median != 0.95 || r.Min != 0.9 || r.Max != 1 || r.Rounds != 3 {
		t.Errorf("ratio %+v", c.Ratio)
	}
	if got := c.GBPerS; got < 3.12 || got > 3.13 {
		t.Errorf("%v GB/s", got)
	}
	f := File{Codec: []Codec{c}}
	var b bytes.Buffer
	if err := f.WriteCodec(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"medians of 3 rounds", "64 KiB       seal        3.12                3.45      0.95 (0.90..1.00)                      0\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := (&File{}).WriteCodec(&b); err != nil || b.Len() != 0 {
		t.Errorf("%q, %v", b.String(), err)
	}
	c.Samples = nil
	if c.Compute(); c.Ratio != (Ratio{}) || c.GBPerS != 0 {
		t.Errorf("%+v", c)
	}
}
