package sessions

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// DefaultCompressionMin is the smallest frame that is compressed, in bytes of
// its segments, as the daemons have it.
const DefaultCompressionMin = 1024

// Compression of frames on the wire (Ceph's compression_onwire.cc). It is off unless Methods
// has a method, and then used with peers that have that method and want compression: daemons of
// release 17 and later may, those of 16 and earlier cannot.
type Compression struct {
	// Methods that may be used, most preferred first; the connector's order decides. Empty: the
	// feature is not announced.
	Methods []wire.CompressionMethod
	// Min is the smallest frame to compress, in bytes; 0: 1024, negative: every frame.
	// The peer has a bound of its own for its frames.
	Min int
	// Peers are the types of peers to compress towards; nil: OSDs only.
	Peers []wire.EntityType
	// Secure compresses in mode secure, too. The length of an encrypted frame then
	// leaks information about its content: leave it off if others can choose a part
	// of the payload.
	Secure bool
}

// compression is a Compression at work.
type compression struct {
	negotiate *handshake2.Compression // nil: not announced
	min       int
	methods   map[wire.CompressionMethod]frame.Compressor
}

// Validate checks the methods.
func (c *Compression) Validate() error {
	for _, m := range c.Methods {
		if !slices.Contains(compress.Methods(), m) {
			return fmt.Errorf("%w: compression method %v", ErrConfig, m)
		}
	}
	return nil
}

// start makes the state that the connections of a messenger share.
func (c *Compression) start() (*compression, error) {
	if len(c.Methods) == 0 {
		return &compression{}, nil
	}
	w := &compression{min: c.Min, methods: make(map[wire.CompressionMethod]frame.Compressor)}
	switch {
	case c.Min == 0:
		w.min = DefaultCompressionMin
	case c.Min < 0:
		w.min = 0
	}
	for _, m := range c.Methods {
		var err error
		if w.methods[m], err = compress.New(m); err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
	}
	peers, secure := c.Peers, c.Secure
	if peers == nil {
		peers = []wire.EntityType{wire.OSD}
	}
	w.negotiate = &handshake2.Compression{
		Methods: slices.Clone(c.Methods),
		Want: func(peer wire.EntityType, mode auth.Mode) bool {
			return slices.Contains(peers, peer) && (mode == auth.CRC || secure)
		},
		Install: w.install,
	}
	return w, nil
}

// install has both directions use the method that was agreed.
func (c *compression) install(enc *frame.Encoder, dec *frame.Decoder, m wire.CompressionMethod) {
	enc.Compress(c.methods[m], c.min)
	dec.Decompress(c.methods[m])
}
