package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A cluster of 20.2 makes keys of kind aes256k for all, or for its services alone. Our client
// uses its objects in each mode, and another key of that kind does not let it in.
// Matrix: IN-01
func TestAES256KKeysOpenAClusterOfBothKinds(t *testing.T) {
	enabled(t)
	if major(t) < 20 {
		t.Skip("keys of kind aes256k came with release 20")
	}
	t.Parallel()
	var tb table
	t.Run("clusters", func(t *testing.T) {
		for _, cfg := range []clusterConfig{
			{auth: "cephx", mode: "crc", ciphers: "aes256k", osds: 1},
			{auth: "cephx", mode: "secure", ciphers: "aes256k", osds: 1},
			{auth: "cephx", mode: "crc", ciphers: "mixed", osds: 1},
		} {
			t.Run(cfg.String(), func(t *testing.T) {
				t.Parallel()
				c := startCluster(t, cfg)
				for _, backend := range backends {
					tb.run(t, combo{"rados client", "cluster", cfg, "msgr2.1", backend}, func(t *testing.T) {
						quiet(t, c)
						useObjects(t, c, dialCluster(t, c, "msgr2.1", backend))
					})
				}
				refuseWrongKey(t, c)
			})
		}
	})
	tb.log(t)
}

func refuseWrongKey(t *testing.T, c *cluster) {
	t.Helper()
	key, err := cephx.NewKey(cephx.AES256K, nil, time.Now())
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := rados.Dial(ctx, rados.Config{Name: admin, Key: key, Mons: []wire.Addr{c.monAddr.V2()}})
	if err == nil {
		check(t, cl.Close())
	}
	if !errors.Is(err, control.ErrAuth) {
		t.Errorf("another key: %v, want %v", err, control.ErrAuth)
	}
}
