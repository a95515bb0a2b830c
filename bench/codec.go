package main

import (
	"context"
	"errors"
	"io"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/codec"
)

// The comparison of the frame codec takes more rounds than messages do, and
// shorter ones.
const (
	codecRounds = 3  // times the rounds of a cell
	codecSlice  = 10 // the slice of a server is so many of one sample
)

// codecSizes are the data segments of that comparison.
func codecSizes() []int { return []int{4 << 10, 64 << 10, 1 << 20, 4 << 20} }

// measureCodec compares the frame codec in secure mode with crypto/cipher, in
// this process, and prints the table.
func (r *runner) measureCodec(ctx context.Context, stdout io.Writer) error {
	all, err := codec.Measure(ctx, codec.Options{
		Sizes: codecSizes(), Rounds: codecRounds * r.opt.rounds, Slice: r.opt.slice / codecSlice,
	}, func(what string) { r.progress.say("%s", what) })
	r.progress.clear()
	if err != nil {
		return err
	}
	r.file.Codec = all
	return r.file.WriteCodec(stdout)
}

// measureCodecOnly starts no servers.
func measureCodecOnly(ctx context.Context, opt options, stdout, stderr io.Writer) error {
	r := newRunner(opt, stderr)
	r.file.Base, r.file.Mode, r.file.Width = "", child.ModeSecure, columns(stdout)
	if err := r.file.WriteHead(stdout); err != nil {
		return err
	}
	return errors.Join(r.measureCodec(ctx, stdout), r.save())
}
