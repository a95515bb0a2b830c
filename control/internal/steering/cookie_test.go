package steering

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestEveryOwnerSurvivesTheCookie(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for cores := 2; cores <= maxHintCores; cores++ {
		for core := range cores {
			for range 4 {
				h := Owner{Core: core, Cores: cores}
				if got := ParseCookie(h.Cookie(rng.Uint64())); got != h {
					t.Fatalf("%+v comes back as %+v", h, got)
				}
			}
		}
	}
}

// What stands in the cookie besides the hint are 48 bits of the random source,
// each of them.
func TestACookieKeeps48RandomBits(t *testing.T) {
	h := Owner{Core: 2, Cores: 4}
	for bit := range 48 {
		if h.Cookie(1<<bit)>>16 != 1<<bit {
			t.Errorf("bit %d of the random number is lost", bit)
		}
	}
}

// To who does not know the hash, the low bits of cookies with the same hint look
// random: each value of each half is about as frequent as the others, each bit
// is set half of the time, and no two bits go together.
func TestCookiesWithTheSameHintLookRandom(t *testing.T) {
	const n = 1 << 16
	rng := rand.New(rand.NewPCG(3, 4))
	for _, h := range []Owner{{0, 2}, {1, 4}, {63, 64}} {
		var bytesLow, bytesHigh [256]int
		var bits [64]int
		var pairs [16][16]int
		for range n {
			c := h.Cookie(rng.Uint64())
			bytesLow[byte(c)]++
			bytesHigh[byte(c>>8)]++
			for b := range 64 {
				bits[b] += int(c >> b & 1)
			}
			for a := range 16 {
				for b := range a {
					pairs[a][b] += int((c>>a ^ c>>b) & 1)
				}
			}
		}
		for _, counts := range [][]int{bytesLow[:], bytesHigh[:]} {
			// 255 degrees of freedom: mean 255, deviation 22.6.
			if x := chiSquare(counts); x < 130 || x > 400 {
				t.Errorf("%+v: chi square of a byte %.0f", h, x)
			}
		}
		limit := 6 * math.Sqrt(n) / 2
		for b, ones := range bits {
			if math.Abs(float64(ones)-n/2) > limit {
				t.Errorf("%+v: bit %d set %d times of %d", h, b, ones, n)
			}
		}
		for a := range 16 {
			for b := range a {
				if math.Abs(float64(pairs[a][b])-n/2) > limit {
					t.Errorf("%+v: bits %d and %d differ %d times of %d", h, a, b, pairs[a][b], n)
				}
			}
		}
	}
}

// chiSquare compares counts with a uniform distribution.
func chiSquare(counts []int) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(len(counts))
	x := 0.0
	for _, n := range counts {
		x += (float64(n) - want) * (float64(n) - want) / want
	}
	return x
}

func TestFewForeignCookiesAreTakenForAHint(t *testing.T) {
	const n = 1 << 18
	rng := rand.New(rand.NewPCG(5, 6))
	taken := 0
	for range n {
		if h := ParseCookie(rng.Uint64()); h.Known() {
			taken++
			if h.Core < 0 || h.Core >= h.Cores || h.Cores > maxHintCores {
				t.Fatalf("impossible hint %+v", h)
			}
		}
	}
	want := float64(n) * hintPairs / (1 << 16)
	if math.Abs(float64(taken)-want) > 6*math.Sqrt(want) {
		t.Errorf("%d of %d foreign cookies are taken for a hint, expected about %.0f", taken, n, want)
	}
	if ParseCookie(0).Known() {
		t.Error("no cookie is taken for a hint")
	}
}

func FuzzHint(f *testing.F) {
	f.Add(uint64(0), uint8(0), uint8(2))
	f.Add(uint64(math.MaxUint64), uint8(63), uint8(64))
	f.Add(Owner{1, 4}.Cookie(12345), uint8(1), uint8(4))
	f.Fuzz(func(t *testing.T, n uint64, core, cores uint8) {
		if h := ParseCookie(n); h.Known() {
			if h.Core < 0 || h.Core >= h.Cores || h.Cores > maxHintCores {
				t.Fatalf("impossible hint %+v", h)
			}
			if h.Cookie(n>>16) != n {
				t.Fatalf("cookie %#x does not come back from %+v", n, h)
			}
		}
		h := Owner{Core: int(core), Cores: int(cores)}
		if h.Cores < 2 || h.Cores > maxHintCores || h.Core >= h.Cores {
			return
		}
		if c := h.Cookie(n); c != 0 && ParseCookie(c) != h {
			t.Fatalf("%+v comes back as %+v", h, ParseCookie(c))
		}
	})
}
