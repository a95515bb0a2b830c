package storage

import (
	"math/rand/v2"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
)

// dice chooses blocks of a file. It belongs to one goroutine at a time.
type dice struct {
	rng    *rand.Rand
	blocks int64
}

func newDice(size int64) *dice {
	return &dice{rng: rand.New(rand.NewPCG(rand.Uint64(), 1)), blocks: size / blocks.Size}
}

// roll returns the offset of one.
func (d *dice) roll() int64 { return d.rng.Int64N(d.blocks) * blocks.Size }
