package handshake2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Each field of each frame of a handshake with each wild value,
// for both roles. A handshake ends with an error, or was not hurt; it never takes
// memory for a length that is not there.
// Matrix: HI-01, HI-25
func TestAnyWildFieldOfAHandshakeIsAnErrorOrHarmless(t *testing.T) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	wanting(&cc, &ac)
	for _, side := range roles(t, cc, ac) {
		t.Run(side.name, func(t *testing.T) {
			list := pieces(t, side.peer)
			must(t, side.hears(side.peer))
			for i, p := range list {
				runs := 0
				total := linktest.Allocated(func() {
					linktest.Spoiled(p.payload, func(changed []byte) {
						runs++
						peer := slices.Concat(join(list[:i]), encode(t, p.tag, changed), join(list[i+1:]))
						if err := side.hears(peer); err != nil {
							wantError(t, err)
						} else if p.tag == frame.TagAuthSignature {
							t.Errorf("%v of %x was accepted", p.tag, changed)
						}
					})
				})
				if runs > 0 && total > uint64(runs)*128<<10 {
					t.Errorf("%v: %d bytes allocated in %d handshakes", p.tag, total, runs)
				}
			}
		})
	}
}

// Whatever comes behind whichever part of a handshake that is in
// order, in each revision and mode, ends it with an error.
// Matrix: HI-23, HI-25
func TestRandomBytesBehindEachStageEndTheHandshake(t *testing.T) {
	seeds := 300
	if os.Getenv("RINGMSGR_LONG") != "" {
		seeds = 10_000
	}
	for _, rev0 := range []bool{false, true} {
		for _, mode := range []auth.Mode{auth.CRC, auth.Secure} {
			t.Run(fmt.Sprintf("rev0=%v,%v", rev0, mode), func(t *testing.T) {
				cc, ac := keyedConfigs(newKeyed(mode), newKeyed(mode))
				cc.Rev0Only, ac.Rev0Only = rev0, rev0
				for _, side := range roles(t, cc, ac) {
					must(t, side.hears(side.peer))
					for stage := range side.writes {
						for seed := range seeds {
							rng := rand.New(rand.NewPCG(uint64(seed), uint64(stage)))
							junk := make([]byte, 1+rng.IntN(400))
							for i := range junk {
								junk[i] = byte(rng.Uint32())
							}
							if err := side.hears(append(slices.Concat(side.writes[:stage]...), junk...)); err == nil {
								t.Errorf("%s: content behind stage %d, seed %d", side.name, stage, seed)
							} else {
								wantError(t, err)
							}
						}
					}
				}
			})
		}
	}
}

// The buffer of frames is used again, and what an earlier frame left there is
// not read for a later one that claims more than it has.
// Matrix: HI-06
func TestAFrameReadsNothingOfTheOneBefore(t *testing.T) {
	long := wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: bytes.Repeat([]byte("secret"), 1000)}.AppendTo(nil)
	short := wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: []byte("short")}.AppendTo(nil)
	binary.LittleEndian.PutUint32(short[12:], 3000) // the length of the payload
	peer := append(answer(t, frame.TagAuthRequest, long), encode(t, frame.TagAuthRequest, short)...)
	_, _, err := Accept(t.Context(), linktest.Scripted(peer), refusing())
	if !errors.Is(err, wire.ErrTruncated) {
		t.Errorf("a payload of 3000 bytes in a frame of %d: %v", len(short), err)
	}
	// What a frame gives out ends with the frame.
	s := newStream(linktest.Scripted(slices.Concat(encode(t, frame.TagAuthRequest, long), encode(t, frame.TagAuthRequest, short))))
	s.start(frame.Rev1)
	for _, want := range [][]byte{long, short} {
		_, p, err := s.ReadFrame(t.Context())
		if err != nil || !bytes.Equal(p, want) || cap(p) > len(p)+64 {
			t.Errorf("%d bytes with room for %d, %v", len(p), cap(p), err)
		}
	}
}

// FuzzPeer lets a peer behave well for some frames and then send anything: raw bytes, or
// a well-formed frame with any tag and payload.
// Matrix: HI-23, HI-24, HI-25
func FuzzPeer(f *testing.F) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	wanting(&cc, &ac)
	sides := roles(f, cc, ac)
	for i, side := range sides {
		for stage, p := range pieces(f, side.peer) {
			f.Add(i == 0, uint8(stage), uint8(p.tag), p.payload)
			f.Add(i == 0, uint8(stage), uint8(0), p.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, connector bool, stage, tag uint8, data []byte) {
		side := sides[1]
		if connector {
			side = sides[0]
		}
		list := pieces(t, side.peer)
		peer := join(list[:int(stage)%len(list)])
		if tag == 0 {
			peer = append(peer, data...)
		} else {
			peer = append(peer, encode(t, frame.Tag(tag), data)...)
		}
		// Whatever the peer sends, it then hangs up, so only a complete handshake succeeds.
		if err := side.hears(peer); err != nil {
			wantError(t, err)
		} else if int(stage)%len(list) < len(list)-2 && tag != 0 {
			t.Fatal("a handshake with frames missing was accepted")
		}
	})
}
