package blocks

import (
	"errors"
	"testing"
)

func TestABlockElsewhereOrChangedIsNoticed(t *testing.T) {
	const off = 7 * Size
	p := make([]byte, 2*Size)
	Fill(p, off, 3)
	if g, err := Check(p, off); g != 3 || err != nil {
		t.Fatalf("generation %d, %v", g, err)
	}
	if err := Stamped(p, off+Size); !errors.Is(err, ErrBlock) {
		t.Errorf("elsewhere: %v", err)
	}
	for _, at := range []int{0, 100, Size - 1, Size + 2000, 2*Size - 1} {
		p[at] ^= 4
		if _, err := Check(p, off); !errors.Is(err, ErrBlock) {
			t.Errorf("byte %d: %v", at, err)
		}
		p[at] ^= 4
	}
	Fill(p[Size:], off+Size, 4)
	if _, err := Check(p, off); !errors.Is(err, ErrBlock) {
		t.Errorf("two generations: %v", err)
	}
	if err := Stamped(p[:100], off); !errors.Is(err, ErrBlock) {
		t.Errorf("a part of a block: %v", err)
	}
}

func TestRequestsComeBackEqualOrAreRefused(t *testing.T) {
	const size = 1 << 20
	for _, r := range []Request{
		{0, Size, Read, 0}, {size - Size, Size, Write, Direct | Grouped}, {Size, MaxLen - Size, Read, Direct},
	} {
		var p [HeadSize]byte
		want := Head{ID: 1 << 50, Request: r, Data: r.Len, Failed: r.Kind == Write}
		want.Put(&p)
		if got, err := ParseHead(&p, size); got != want || err != nil {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
	for _, r := range []Request{
		{}, {1, Size, Read, 0}, {-Size, Size, Read, 0}, {0, Size - 1, Write, 0}, {0, 0, Read, 0}, {size, Size, Read, 0}, {0, 2 * MaxLen, Read, 0}, {0, Size, 3, 0}, {0, Size, Write, 4},
	} {
		var p [RequestSize]byte
		r.Put(&p)
		if _, err := Parse(p[:], size); !errors.Is(err, ErrBlock) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := Parse(nil, size); !errors.Is(err, ErrBlock) {
		t.Error(err)
	}
}
