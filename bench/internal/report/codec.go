package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// Codec compares one operation of the frame codec in secure mode with the same
// operation of crypto/cipher on as many bytes, on one core.
type Codec struct {
	Size         int           `json:"size"` // bytes of the data segment
	Op           string        `json:"op"`   // "seal" or "open"
	Samples      []CodecSample `json:"samples"`
	GBPerS       float64       `json:"gb_per_s"`        // of the codec, median, 10^9 bytes of data
	CipherGBPerS float64       `json:"cipher_gb_per_s"` // of crypto/cipher
	Ratio        Ratio         `json:"ratio"`           // of the speeds, codec : crypto/cipher; above 1 is better
	Allocations  float64       `json:"allocations_per_frame"`
}

// CodecSample is one round: both sides in turn, in small portions. Times are CPU
// time of the thread.
type CodecSample struct {
	Round    int     `json:"round"`
	NS       float64 `json:"ns_per_frame"`
	CipherNS float64 `json:"cipher_ns_per_segment"`
}

// Compute fills in the medians and the ratio from the samples.
func (c *Codec) Compute() {
	var own, cipher, ratios []float64
	for _, s := range c.Samples {
		own = append(own, float64(c.Size)/s.NS)
		cipher = append(cipher, float64(c.Size)/s.CipherNS)
		if q := s.CipherNS / s.NS; !math.IsNaN(q) && !math.IsInf(q, 0) {
			ratios = append(ratios, q)
		}
	}
	c.GBPerS, c.CipherGBPerS, c.Ratio = Median(own), Median(cipher), summed(ratios)
}

// WriteCodec writes the table of the frame codec.
func (f *File) WriteCodec(w io.Writer) error {
	var b bytes.Buffer
	f.writeCodec(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (f *File) writeCodec(b *bytes.Buffer) {
	if len(f.Codec) == 0 {
		return
	}
	b.WriteByte('\n')
	writeText(b, fmt.Sprintf("AES-128-GCM on one core: frames of our codec against bare segments of crypto/cipher (CPU time, %s)",
		mediansOf(len(f.Codec[0].Samples))), f.width())
	rows := [][]string{{"data", "operation", "codec GB/s", "crypto/cipher GB/s", "codec : crypto/cipher", "allocations per frame"}}
	for _, c := range f.Codec {
		rows = append(rows, []string{
			quantity.Bytes(int64(c.Size)), c.Op, fmt.Sprintf("%.2f", c.GBPerS), fmt.Sprintf("%.2f", c.CipherGBPerS),
			c.Ratio.String(), strconv.FormatFloat(c.Allocations, 'f', -1, 64),
		})
	}
	writeAligned(b, rows, f.width(), 0)
}
