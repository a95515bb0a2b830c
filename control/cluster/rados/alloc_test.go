//go:build !race

package rados_test

import (
	"errors"
	"testing"
)

// A single call of these has no memory of its own, but for an OSD in this process, which makes one for each answer.
func TestASingleCallAllocatesNothing(t *testing.T) {
	ctx, osd, o := startObject(t)
	data := make([]byte, 4096)
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"WriteFull", func() error { return o.WriteFull(ctx, data) }},
		{"Append", func() error { return o.Append(ctx, data) }},
		{"Write", func() error { return o.Write(ctx, 0, data) }},
		{"ReadInto", func() error { _, err := o.ReadInto(ctx, 0, data); return err }},
	} {
		osd.answer(nil, nil)
		if err := c.call(); err != nil {
			t.Fatal(c.name, err)
		}
		osd.answer(osd.last, nil)
		var err error
		n := testing.AllocsPerRun(500, func() { err = errors.Join(err, c.call()) })
		if t.Logf("%s: %v allocations, those of the OSD included", c.name, n); n > 1 || err != nil {
			t.Errorf("%s: %v allocations, %v", c.name, n, err)
		}
	}
}
