package handshake1

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// Release gives up the codecs for a connection with these features, which both sides
// support, and overwrites the secrets. Messages are signed if the authorizer was one of
// cephx and both sides have MSG_AUTH; the form of the signature is that of CEPHX_V2 if
// both have that. The decoder has the limits of the options.
func (c *conn) Release(features wire.Features) (*frame1.Encoder, *frame1.Decoder, error) {
	defer c.Wipe()
	cfg := frame1.Config{
		Form: frame1.Form{
			OldHeader:    !features.Has(wire.FeatureNoSrcAddr),
			OldFooter:    !features.Has(wire.FeatureMsgAuth),
			OldKeepalive: !features.Has(wire.FeatureMsgrKeepalive2),
		},
		NoDataCRC: c.opts.NoDataCRC,
	}
	var signers [2]frame1.Signer
	if !cfg.OldFooter && c.res != nil && c.res.Method == auth.Cephx {
		key, err := cephx.KeyFromSecret(c.res.SessionKey, time.Time{})
		if err != nil {
			return nil, nil, err
		}
		defer key.Wipe()
		for i := range signers {
			if signers[i], err = cephx.NewSigner(key, features.Has(wire.FeatureCephxV2)); err != nil {
				return nil, nil, err
			}
		}
	}
	limits := c.opts.Limits
	if limits == (frame.Limits{}) {
		limits = frame.DefaultLimits()
	}
	peer := [wire1.AddrSize]byte(c.remote.AppendLegacyTo(nil))
	return frame1.NewEncoder(cfg, signers[0], peer), frame1.NewDecoder(cfg, signers[1], limits), nil
}
